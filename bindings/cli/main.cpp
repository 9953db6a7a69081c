#include <algorithm>
#include <array>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench_command.h"
#include "command_line.h"
#include "dispatch_key_trial.h"
#include "doctor_command.h"
#include "exit_codes.h"
#include "gpu_trial.h"
#include "help_text.h"
#include "installation.h"
#include "link_bench.h"
#include "planning_program.h"
#include "profile_command.h"
#include "profile_options.h"
#include "run_command.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

constexpr std::array<std::string_view, 6> kCommands{"run",      "profile", "plan",
                                                    "simulate", "doctor",  "bench-io"};

/// What plans and reads published traces is a program of its own.
[[noreturn]] void hand_to_planning(const std::string& command, Words words) {
  words.insert(words.begin(), command);
  become_planning_program(own_path(), std::move(words));
}

int run(const Words& words) {
  const RunArguments arguments = split_run_arguments(words);
  CommandLine line("run", kRunDescription, "spillway run [options] -- program arguments...",
                   kRunExamples);
  line.add_settings();
  if (!line.parse(arguments.options)) return kDone;
  return run_program(line.given_settings(), arguments.program);
}

int profile(const Words& words) {
  const ProfileArguments arguments = split_profile_arguments(words);
  if (arguments.imports) hand_to_planning("profile", words);
  ProfileOptions given;
  CommandLine line = profile_command_line(given);
  if (!line.parse(arguments.options)) return kDone;
  return record_profile(line.given_settings(), given.out, given.steps, given.kind,
                        arguments.program);
}

int doctor(const Words& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  CommandLine line("doctor", kDoctorDescription, "spillway doctor [options] [-- program]",
                   kDoctorExamples);
  DoctorOptions options;
  bool skips_disks = false;
  line.add_flag("--json", options.json, "Print the report as JSON");
  line.add_flag("--skip-disks", skips_disks, "Do not measure disks (saves some seconds)");
  line.add_settings({"budget", "nvme", "reserve", "store", "mapper", "rates", "config"});
  if (!line.parse(Words(words.begin(), dashes))) return kDone;
  options.measures_disks = !skips_disks;
  if (dashes != words.end() && dashes + 1 != words.end()) options.program = *(dashes + 1);
  return examine(line.given_settings(), options);
}

// Where nothing was given, what is there stays.
void take_sizes(const char* option, const std::string& given, std::vector<Bytes>& sizes) {
  if (given.empty()) return;
  sizes.clear();
  for (const std::string& size : comma_separated(given)) sizes.push_back(size_in(option, size));
}

template <typename Count>
void take_counts(const char* option, const std::string& given, std::vector<Count>& counts) {
  if (given.empty()) return;
  counts.clear();
  for (const std::string& count : comma_separated(given)) counts.push_back(count_in(option, count));
}

void refuse_given(const std::vector<std::pair<const char*, const std::string*>>& options,
                  const char* why) {
  for (const auto& [option, word] : options)
    if (!word->empty()) throw ConfigError("{} {} {}", option, *word, why);
}

int bench_io(const Words& words) {
  CommandLine line(
      "bench-io", kBenchDescription,
      "spillway bench-io [options] DIR\n       spillway bench-io [options] --device cuda:0",
      kBenchExamples);
  BenchOptions options;
  LinkBenchOptions link;
  std::string size, blocks, depths, store, repetitions, chunks;
  options.rates_path = topology::default_disk_rates_path();
  line.add_argument("DIR", options.directory, "Directory to measure", CommandLine::Need::kOptional);
  line.add_text("--device", link.device, "GPU",
                "GPU whose link to host memory is measured instead of a directory: cuda:0");
  line.add_text("--file-size", size, "SIZE", "Size of the file that is written and read [1GiB]");
  line.add_text("--blocks", blocks, "SIZE,...",
                "Block sizes, of a disk at most 2MiB [512KiB,1MiB,2MiB; of a GPU "
                "256KiB,4MiB,32MiB]");
  line.add_text("--depths", depths, "COUNT,...", "Numbers of transfers in flight [1,4,16]");
  line.add_text("--chunks", chunks, "SIZE,...",
                "Chunks of a GPU's memory that are mapped and unmapped [2MiB,4MiB,8MiB,32MiB]");
  line.add_text("--repetitions", repetitions, "COUNT",
                "Repetitions of each measurement [3; of a GPU 5]");
  line.add_text("--store", store, alternatives(measurable_stores()),
                "I/O interface that writes and reads the file [auto]");
  line.add_text("--rates", options.rates_path, "FILE",
                "File for the result [~/.config/spillway/disks.json]");
  if (!line.parse(words)) return kDone;
  if (options.directory.empty() && link.device.empty())
    throw ConfigError(
        "DIR is missing: directory to measure (the link of a GPU: bench-io --device cuda:0)");
  if (!options.directory.empty() && !link.device.empty())
    throw ConfigError("bench-io measures either the directory {} or {}: leave one of the two out",
                      shown_text(options.directory), shown_text(link.device));
  if (!link.device.empty()) {
    refuse_given({{"--file-size", &size}, {"--store", &store}}, "is for a directory");
    link.rates_path = options.rates_path;
    take_sizes("--blocks", blocks, link.probe.blocks);
    take_sizes("--chunks", chunks, link.chunks);
    take_counts("--depths", depths, link.probe.depths);
    if (!repetitions.empty()) link.probe.repetitions = count_in("--repetitions", repetitions);
    return measure_link_of(link);
  }
  refuse_given({{"--chunks", &chunks}}, "is for a GPU (--device)");
  if (!size.empty()) options.probe.file_size = size_in("--file-size", size);
  if (!store.empty())
    options.probe.kind = value_named(store, measurable_stores(), "store for a disk");
  take_sizes("--blocks", blocks, options.probe.block_sizes);
  take_counts("--depths", depths, options.probe.queue_depths);
  if (!repetitions.empty()) options.probe.repetitions = count_in("--repetitions", repetitions);
  return measure_disk(options);
}

int print_version() {
  const std::string served = find_installation(own_path()).list_of_served();
  std::cout << "spillway " << SPILLWAY_VERSION << "\nserves LibTorch "
            << (served.empty() ? "versions: none installed" : served) << '\n';
  return kDone;
}

int dispatch(const Words& words) {
  if (words.empty()) {
    std::cerr << kOverview;
    return kWrongUsage;
  }
  const std::string& command = words.front();
  const Words rest(words.begin() + 1, words.end());
  if (command == "run") return run(rest);
  if (command == "plan" || command == "simulate") hand_to_planning(command, rest);
  if (command == "profile") return profile(rest);
  if (command == "doctor") return doctor(rest);
  if (command == "bench-io") return bench_io(rest);
  if (command == kTrialCommand) return run_trial(rest);
  if (command == kGpuTrialCommand) return run_gpu_trial(rest);
  if (command == "--version" || command == "version") return print_version();
  if (command == "--help" || command == "-h" || command == "help") {
    if (!rest.empty() && rest.front() != "--help") return dispatch({rest.front(), "--help"});
    std::cout << kOverview;
    return kDone;
  }
  if (command.front() == '-')
    throw ConfigError("options stand behind a command: spillway run {} ... (see spillway --help)",
                      command);
  throw ConfigError("unknown command '{}'{}", command, hint_for(command, kCommands));
}

}  // namespace
}  // namespace spillway::cli

int main(int count, char** words) {
  return spillway::cli::exit_code_of(&spillway::cli::dispatch, count, words);
}
