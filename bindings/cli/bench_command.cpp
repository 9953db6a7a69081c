#include "bench_command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <sstream>

#include "exit_codes.h"
#include "output_files.h"
#include "progress_line.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/transfer_rates.h"
#include "spillway/topology/directory.h"

namespace spillway::cli {
namespace {

// Half of these bytes are written, half are read.
Spread both(const swap::DiskPoint& point) {
  const auto& [written, written_min, written_max] = point.mixed_write;
  const auto& [read, read_min, read_max] = point.mixed_read;
  return {written + read, written_min + read_min, written_max + read_max};
}

topology::Directory usable_directory(const std::string& path, Bytes file_size) {
  topology::Directory facts = topology::inspect_directory(path);
  const std::string reason = topology::reason_against(facts);
  if (!reason.empty()) throw ConfigError("directory {} {}", path, reason);
  if (facts.free && *facts.free < file_size)
    throw ConfigError("directory {} has {} free, less than the file of {} to measure with (name a "
                      "smaller one with --file-size, or free some room)",
                      path, *facts.free, file_size);
  if (facts.is_ram_disk)
    log_warning("{} is a RAM disk ({}): these are rates of memory", path, *facts.filesystem);
  return facts;
}

topology::DiskSample sample_of(const swap::DiskPoint& point, topology::Load load, double read,
                               double write) {
  return {load, point.block, static_cast<unsigned>(point.queue_depth), TransferRate(read),
          TransferRate(write)};
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

void check_rates_path(const std::string& path) {
  check_outputs(
      {}, {{"--rates", path}},
      path == topology::default_disk_rates_path() ? MissingFolder::kMade : MissingFolder::kRefused);
}

int save_rates(const topology::DiskRates& rates, const std::string& path) {
  if (path.empty()) {
    std::cout << "not recorded: neither XDG_CONFIG_HOME nor HOME names a place for it (name a file "
                 "with --rates)\n";
    return kDone;
  }
  rates.save(path);
  std::cout << "recorded in " << path
            << (path == topology::default_disk_rates_path()
                    ? ", where later runs find it for their plans\n"
                    : message(", for runs with --rates {}\n", shell_word(path)));
  return kDone;
}

std::vector<Named<swap::StoreKind>> measurable_stores() {
  std::vector<Named<swap::StoreKind>> stores;
  for (const auto& store : swap::store_kinds())
    if (store.value != swap::StoreKind::kRam) stores.push_back(store);
  return stores;
}

std::string rate_cell(const Spread& rate) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%6.2f [%.2f-%.2f]", rate.median / 1e9, rate.least / 1e9,
                rate.most / 1e9);
  return text.data();
}

std::string rates_table(const swap::DiskProbe& probe) {
  std::ostringstream out;
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "%8s %6s  %-20s  %-20s  %s\n", "block", "depth",
                "write GB/s", "read GB/s", "both at once GB/s");
  out << line.data();
  for (const swap::DiskPoint& point : probe.points) {
    std::string last = rate_cell(both(point));
    if (&point == probe.best()) last.resize(std::max<std::size_t>(last.size(), 20), ' ');
    std::snprintf(line.data(), line.size(), "%8s %6zu  %-20s  %-20s  %s%s\n",
                  to_string(point.block).c_str(), point.queue_depth, rate_cell(point.write).c_str(),
                  rate_cell(point.read).c_str(), last.c_str(),
                  &point == probe.best() ? "  best" : "");
    out << line.data();
  }
  out << "first write into fresh space: " << TransferRate(probe.first_write_bytes_per_second)
      << '\n'
      << "best: moves most while it writes and reads at once, as a training step does. Plans "
         "begin\n"
         "with the rates of this line, what the disk can do. Runs move blocks of 2 MiB,\n"
         "--queue-depth (16) at a time in each directory, and go on with the rates that they "
         "see.\n";
  return out.str();
}

topology::DiskRate to_disk_rate(const swap::DiskProbe& probe, const std::string& directory,
                                const std::string& device, const std::string& mount_point,
                                const std::string& measured_at) {
  topology::DiskRate result;
  result.directory = directory;
  result.device = device;
  result.mount_point = mount_point;
  result.measured_at = measured_at;
  if (const swap::DiskPoint* best = probe.best()) {
    result.read = TransferRate(best->read.median);
    result.write = TransferRate(best->write.median);
    result.both = TransferRate(best->mixed_read.median + best->mixed_write.median);
  }
  result.write_fixed_seconds = probe.fixed_seconds(&swap::DiskPoint::write);
  result.read_fixed_seconds = probe.fixed_seconds(&swap::DiskPoint::read);
  result.interference_seconds_per_byte = probe.slowdown_seconds_per_byte;
  for (const swap::DiskPoint& point : probe.points) {
    result.samples.push_back(sample_of(point, topology::Load::kRead, point.read.median, 0.0));
    result.samples.push_back(sample_of(point, topology::Load::kWrite, 0.0, point.write.median));
    result.samples.push_back(
        sample_of(point, topology::Load::kBoth, point.mixed_read.median, point.mixed_write.median));
  }
  return result;
}

std::string costs_text(const topology::DiskRate& rate) {
  const auto fixed = [](const std::optional<double>& cost) {
    return cost ? seconds_text(*cost)
                : std::string("not measured (needs depth 1 and a deeper one)");
  };
  std::string text = message("a transfer by itself takes, beyond its bytes: write {}, read {}\n",
                             fixed(rate.write_fixed_seconds), fixed(rate.read_fixed_seconds));
  const profile::TransferRates assumed;
  if (rate.interference_seconds_per_byte)
    text += message("computing beside transfers loses {} per GB moved\n",
                    seconds_text(1e9 * *rate.interference_seconds_per_byte));
  else
    text +=
        message("computing beside transfers: measurements disagree, plans assume {} per GB moved "
                "(measure again when the machine is idle)\n",
                seconds_text(1e9 * assumed.interference_seconds_per_byte));
  if (rate.checksum) text += message("checksums of --verify: {} per processor\n", *rate.checksum);
  return text;
}

int measure_disk(const BenchOptions& options) {
  check_rates_path(options.rates_path);
  const topology::Directory facts = usable_directory(options.directory, options.probe.file_size);
  // Read before measuring: a broken file must not cost the user minutes.
  topology::DiskRates rates;
  if (!options.rates_path.empty()) rates = topology::DiskRates::load_if_there(options.rates_path);
  swap::DiskProbeOptions probing = options.probe;
  const SteadyClock clock;
  ProgressLine line(clock);
  probing.progress = [&](const swap::DiskProbeProgress& progress) {
    line.show(message("{} of {}: {}", progress.passes, progress.passes_total, progress.current));
  };
  probing.workload = &swap::make_workload;
  const swap::DiskProbe probe = swap::measure_directory(facts.path, probing);
  const double checksums = swap::measure_checksums(clock);
  line.clear();
  for (const std::string& warning : probe.warnings) log_warning("{}", warning);
  std::cout << probe.description << ", file of " << to_string(probe.file_size)
            << "; median [lowest-highest]\n"
            << rates_table(probe);
  topology::DiskRate rate = to_disk_rate(probe, facts.path, facts.device ? facts.device->name : "",
                                         facts.mount_point.value_or(""), utc_now());
  rate.checksum = TransferRate(checksums);
  std::cout << costs_text(rate);
  rates.record(std::move(rate));
  return save_rates(rates, options.rates_path);
}

}  // namespace spillway::cli
