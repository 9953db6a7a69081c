// Does the spill store keep the disk as busy as fio does? Same blocks, depth and file size, taking
// turns, so that a change of the machine's load hits both.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fio.h"
#include "spillway/base/clock.h"
#include "spillway/base/error.h"
#include "spillway/base/median.h"
#include "spillway/swap/disk_probe.h"
#include "spillway/swap/spill_store_factory.h"

namespace spillway::benchmarks {
namespace {

struct Settings {
  std::string directory;
  std::string file_size = "1GiB";
  std::vector<std::string> blocks = {"2MiB"};
  std::vector<std::size_t> depths = {16};
  std::string kind = "auto";
  bool verify = false;
  std::size_t rounds = 7;
  std::string json;
};

/// The rounds of one figure, for the store and for fio.
struct Series {
  const char* name;
  std::vector<double> store;
  std::vector<double> fio;
};

std::string with_range(std::vector<double> values, int digits = 2, const char* unit = "") {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double lowest = *least;  // The median reorders the values.
  const double highest = *most;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f%s [%.*f–%.*f]", digits, median(values), unit, digits,
                lowest, digits, highest);
  return text;
}

// Each round divides by the fio of the same round: neighbours on the machine change both.
std::string ratio_of(const Series& series) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < series.store.size(); ++i)
    ratios.push_back(100.0 * series.store[i] / series.fio[i]);
  return with_range(ratios, 0, " %");
}

/// A file for fio that goes with the benchmark; fio opens files by name.
class NamedFile {
 public:
  explicit NamedFile(const std::string& directory)
      : path_(message("{}/spillway-fio-{}", directory, ::getpid())) {}
  ~NamedFile() { ::unlink(path_.c_str()); }
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

swap::DiskPoint measure_spill_store(swap::SpillStore& store, const Load& load) {
  swap::DiskProbeOptions options;
  options.file_size = load.file_size;
  options.block_sizes = {load.block};
  options.queue_depths = {load.depth};
  options.repetitions = 1;
  options.longest_pass = std::chrono::hours(1);
  return measure_store(store, options, SteadyClock()).points.front();
}

nlohmann::json record_of(const std::string& what, const std::vector<Series>& table) {
  nlohmann::json record{{"what", what}, {"series", nlohmann::json::array()}};
  for (const Series& series : table)
    record["series"].push_back(
        {{"name", series.name}, {"store", series.store}, {"fio", series.fio}});
  return record;
}

/// Prints one table and returns its figures.
nlohmann::json compare(const Settings& settings, const Load& load) {
  swap::SpillStoreOptions options;
  options.directories = {{settings.directory, Bytes()}};
  options.kind = swap::store_kind_from(settings.kind);
  options.queue_depth = load.depth;
  options.verify = settings.verify;
  const swap::OpenedSpillStore opened = swap::make_spill_store(options);
  for (const std::string& warning : opened.warnings) std::cerr << "warning: " << warning << '\n';
  const NamedFile file(settings.directory);
  run_fio(file.path(), "write", {load.file_size, Bytes(swap::kExtentBytes), load.depth});

  std::vector<Series> table{{"write", {}, {}}, {"read", {}, {}}, {"write and read", {}, {}}};
  for (std::size_t round = 0; round < settings.rounds; ++round) {
    std::cerr << "round " << round + 1 << " of " << settings.rounds << "\r";
    const auto run_store = [&] {
      const swap::DiskPoint rates = measure_spill_store(*opened.store, load);
      table[0].store.push_back(rates.write.median / 1e9);
      table[1].store.push_back(rates.read.median / 1e9);
      table[2].store.push_back((rates.mixed_write.median + rates.mixed_read.median) / 1e9);
    };
    if (round % 2 == 0) run_store();
    table[0].fio.push_back(run_fio(file.path(), "write", load).write_gb_per_s);
    table[1].fio.push_back(run_fio(file.path(), "read", load).read_gb_per_s);
    const Rates both = run_fio(file.path(), "rw", load);
    table[2].fio.push_back(both.write_gb_per_s + both.read_gb_per_s);
    if (round % 2 == 1) run_store();
  }
  const std::string what =
      message("{}{}, {}, blocks of {}, depth {}", opened.description,
              settings.verify ? ", checksums" : "", load.file_size, load.block, load.depth);
  std::cout << "\n"
            << what << "\n\n| | store, GB/s | fio, GB/s | store / fio |\n|---|---|---|---|\n";
  for (const Series& series : table)
    std::cout << "| " << series.name << " | " << with_range(series.store) << " | "
              << with_range(series.fio) << " | " << ratio_of(series) << " |\n";
  std::cout << std::flush;
  return record_of(what, table);
}

void write_json(const std::string& file, const nlohmann::json& loads) {
  std::ofstream out(file);
  out << nlohmann::json{{"loads", loads}}.dump(1) << '\n';
  if (!out.flush()) throw IoError("cannot write {}", file);
}

std::string load_average() {
  std::string one;
  std::ifstream("/proc/loadavg") >> one;
  return one;
}

int run(int argc, char** argv) {
  Settings settings;
  CLI::App app("Compares the spill store with fio on one directory");
  app.add_option("directory", settings.directory, "On the disk to measure")->required();
  app.add_option("--file-size", settings.file_size, "With a unit")->capture_default_str();
  app.add_option("--block", settings.blocks, "4KiB to 2MiB; several are allowed");
  app.add_option("--depth", settings.depths, "Transfers in flight; several are allowed");
  app.add_option("--kind", settings.kind, "auto, io_uring or posix")->capture_default_str();
  app.add_flag("--verify", settings.verify, "With checksums");
  app.add_option("--rounds", settings.rounds, "Of both in turn")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--json", settings.json, "Also write all figures to this file");
  CLI11_PARSE(app, argc, argv);
  std::cout << "load average at the start: " << load_average() << '\n';
  nlohmann::json loads = nlohmann::json::array();
  for (const std::string& block : settings.blocks)
    for (const std::size_t depth : settings.depths)
      loads.push_back(
          compare(settings, {parse_bytes(settings.file_size), parse_bytes(block), depth}));
  if (!settings.json.empty()) write_json(settings.json, loads);
  std::cout << "\nload average at the end: " << load_average() << '\n';
  return 0;
}

}  // namespace
}  // namespace spillway::benchmarks

int main(int argc, char** argv) {
  try {
    return spillway::benchmarks::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "is_the_disk_busy: " << error.what() << '\n';
    return 1;
  }
}
