#include "bench_command.h"

#include <dlfcn.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <sstream>
#include <string_view>

#include "exit_codes.h"
#include "installation.h"
#include "output_files.h"
#include "progress_line.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/device/cuda/mapping_times.h"
#include "spillway/profile/transfer_rates.h"
#include "spillway/topology/directory.h"

namespace spillway::cli {
namespace {

/// "2026-11-21T10:00:00Z"
std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

/// Before anything is measured: it takes minutes on a slow disk.
void check_rates_path(const std::string& path) {
  check_outputs(
      {}, {{"--rates", path}},
      path == topology::default_disk_rates_path() ? MissingFolder::kMade : MissingFolder::kRefused);
}

/// Writes the file of rates, unless there is no place for it, and says where it is.
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

/// "  3.10 [2.90-3.20]": a rate in GB/s, median and range.
std::string rate_cell(const Spread& rate) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%6.2f [%.2f-%.2f]", rate.median / 1e9, rate.least / 1e9,
                rate.most / 1e9);
  return text.data();
}

/// A row of a table whose rates take so many letters.
std::string row(const std::array<std::string, 5>& cells, int width, const char* remark) {
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(), "%8s %6s  %-*s  %-*s  %-*s%s", cells[0].c_str(),
                cells[1].c_str(), width, cells[2].c_str(), width, cells[3].c_str(), width,
                cells[4].c_str(), remark);
  const std::string_view text = line.data();
  return std::string(text.substr(0, text.find_last_not_of(' ') + 1)) + "\n";
}

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

device::DeviceId gpu_named(const std::string& text) {
  constexpr std::string_view kNumbered = "cuda:";
  device::DeviceId id{device::DeviceKind::kCuda, 0};
  if (text.starts_with(kNumbered))
    std::from_chars(text.data() + kNumbered.size(), text.data() + text.size(), id.index);
  if (text != device::to_string(id))
    throw ConfigError("--device: '{}' is no GPU (write cuda:0, cuda:1 and so on; rates of a disk: "
                      "spillway bench-io DIR)",
                      shown_text(text));
  return id;
}

/// The runtime of CUDA that trainers here would use; what cannot be loaded is told by who looks for
/// it next.
void load_runtime() {
  for (const FoundTorch& torch : find_installed_torches()) {
    if (torch.cuda_runtime.empty()) continue;
    ::dlopen(torch.cuda_runtime.c_str(), RTLD_NOW | RTLD_GLOBAL);
    return;
  }
}

const char* word_for(device::Beside beside) {
  switch (beside) {
    case device::Beside::kNothing: return "nothing";
    case device::Beside::kWork: return "work";
    case device::Beside::kCopies: break;
  }
  return "copies";
}

constexpr int kLinkCell = 22;

void add_link(std::ostringstream& out, const device::LinkPoint& point, const char* remark) {
  out << row({to_string(point.block), std::to_string(point.depth), rate_cell(point.out),
              rate_cell(point.in), rate_cell(point.both)},
             kLinkCell, remark);
}

std::string span_text(const Spread& time) {
  return message("{} [{}-{}]", seconds_text(time.median), seconds_text(time.least),
                 seconds_text(time.most));
}

void add_mapping(std::ostringstream& out, const std::vector<device::MappingTime>& mapping) {
  if (mapping.empty()) {
    out << "no virtual memory: nothing is mapped\n";
    return;
  }
  out << "a chunk is mapped, with access, and unmapped in (beside: nothing; work, copies within\n"
         "the GPU's memory; copies to and from the host)\n";
  for (const device::MappingTime& time : mapping)
    out << message("{} beside {}: {}, {}\n", time.chunk, word_for(time.beside), span_text(time.map),
                   span_text(time.unmap));
}

/// The tables for people.
std::string link_tables(const device::LinkProbe& probe,
                        const std::vector<device::MappingTime>& mapping) {
  std::ostringstream out;
  out << row({"block", "depth", "out GB/s", "in GB/s", "both at once GB/s"}, kLinkCell, "");
  for (const device::LinkPoint& point : probe.points)
    add_link(out, point, &point == probe.best() ? "  plans" : "");
  if (probe.beside) {
    const device::LinkBesideWork& beside = *probe.beside;
    add_link(out, beside.link, "  beside work");
    out << message("work is copies within the GPU's memory, the most that work can take of it: {} "
                   "alone,\n{} beside copies both ways\n",
                   TransferRate(beside.work_alone), TransferRate(beside.work_beside));
  }
  add_mapping(out, mapping);
  for (const device::PinningTime& time : probe.pinning)
    out << message("pinning {}: {}{}\n", time.size, seconds_text(time.seconds),
                   time.refusal.empty() ? "" : "; refused, it is pageable: " + time.refusal);
  return out.str();
}

/// The result as the rates file keeps it.
topology::LinkRate to_link_rate(const device::LinkProbe& probe,
                                const std::vector<device::MappingTime>& mapping) {
  topology::LinkRate rate;
  const auto add = [&](const device::LinkPoint& point, bool beside_work) {
    rate.samples.push_back({point.block, point.depth, beside_work, TransferRate(point.out.median),
                            TransferRate(point.in.median), TransferRate(point.both.median)});
  };
  if (const device::LinkPoint* best = probe.best()) {
    rate.out = TransferRate(best->out.median);
    rate.in = TransferRate(best->in.median);
    rate.both = TransferRate(best->both.median);
  }
  rate.out_fixed_seconds = probe.fixed_seconds(&device::LinkPoint::out);
  rate.in_fixed_seconds = probe.fixed_seconds(&device::LinkPoint::in);
  for (const device::LinkPoint& point : probe.points) add(point, false);
  if (probe.beside) {
    add(probe.beside->link, true);
    rate.interference_seconds_per_byte = probe.beside->lost_seconds_per_byte;
  }
  for (const device::MappingTime& time : mapping)
    rate.mapping.push_back({time.chunk, word_for(time.beside), time.map.median, time.unmap.median});
  for (const device::PinningTime& time : probe.pinning)
    if (time.refusal.empty()) rate.pinning.push_back({time.size, time.seconds});
  return rate;
}

}  // namespace

std::vector<Named<swap::StoreKind>> measurable_stores() {
  std::vector<Named<swap::StoreKind>> stores;
  for (const auto& store : swap::store_kinds())
    if (store.value != swap::StoreKind::kRam) stores.push_back(store);
  return stores;
}

std::string rates_table(const swap::DiskProbe& probe) {
  constexpr int kCell = 20;
  std::string text =
      row({"block", "depth", "write GB/s", "read GB/s", "both at once GB/s"}, kCell, "");
  for (const swap::DiskPoint& point : probe.points)
    text += row({to_string(point.block), std::to_string(point.queue_depth), rate_cell(point.write),
                 rate_cell(point.read), rate_cell(both(point))},
                kCell, &point == probe.best() ? "  best" : "");
  return text +
         message("first write into fresh space: {}\n",
                 TransferRate(probe.first_write_bytes_per_second)) +
         "best: moves most while it writes and reads at once, as a training step does. Plans "
         "begin\n"
         "with the rates of this line, what the disk can do. Runs move blocks of 2 MiB,\n"
         "--queue-depth (16) at a time in each directory, and go on with the rates that they "
         "see.\n";
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
  auto rates = topology::DiskRates::load_if_there(options.rates_path);
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

int measure_link_of(const LinkBenchOptions& options) {
  const device::DeviceId id = gpu_named(options.device);
  check_rates_path(options.rates_path);
  auto rates = topology::DiskRates::load_if_there(options.rates_path);
  load_runtime();
  const std::array backends{device::cuda_backend()};
  const auto gpu = device::open_device(id, backends);
  device::LinkProbeOptions probing = options.probe;
  const SteadyClock clock;
  ProgressLine line(clock);
  probing.progress = [&](const std::string& what) { line.show(what); };
  line.show("mapping of the GPU's memory");  // First, as it may refuse the chunks.
  const auto mapping = device::measure_mapping(*gpu, options.chunks);
  const device::LinkProbe probe = device::measure_link(*gpu, probing);
  line.clear();
  if (!probe.why_pageable.empty())
    log_warning("host memory stays pageable, and copies take a detour: {}", probe.why_pageable);
  topology::LinkRate rate = to_link_rate(probe, mapping);
  if (const auto facts = device::cuda_facts_of(id)) rate.name = facts->name;
  rate.device = options.device;
  rate.measured_at = utc_now();
  std::cout << message("{}, {}, {}; median [lowest-highest]\n", rate.device, rate.name,
                       rate.measured_at)
            << link_tables(probe, mapping);
  rates.record(std::move(rate));
  return save_rates(rates, options.rates_path);
}

}  // namespace spillway::cli
