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
#include "planning_program.h"
#include "profile_command.h"
#include "profile_options.h"
#include "run_command.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/named_values.h"

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

int bench_io(const Words& words) {
  CommandLine line("bench-io", kBenchDescription, "spillway bench-io [options] DIR",
                   kBenchExamples);
  BenchOptions options;
  std::string size = "1GiB", blocks = "512KiB,1MiB,2MiB", depths = "1,4,16", store = "auto",
              repetitions = std::to_string(options.probe.repetitions);
  options.rates_path = topology::default_disk_rates_path();
  line.add_argument("DIR", options.directory, "Directory to measure", CommandLine::Need::kRequired);
  line.add_text("--file-size", size, "SIZE", "Size of the file that is written and read [1GiB]");
  line.add_text("--blocks", blocks, "SIZE,...", "Block sizes, at most 2MiB [512KiB,1MiB,2MiB]");
  line.add_text("--depths", depths, "COUNT,...", "Numbers of transfers in flight [1,4,16]");
  line.add_text("--repetitions", repetitions, "COUNT", "Repetitions of each measurement [3]");
  line.add_text("--store", store, alternatives(measurable_stores()),
                "I/O interface that writes and reads the file [auto]");
  line.add_text("--rates", options.rates_path, "FILE",
                "File for the result [~/.config/spillway/disks.json]");
  if (!line.parse(words)) return kDone;
  options.probe.file_size = size_in("--file-size", size);
  options.probe.repetitions = count_in("--repetitions", repetitions);
  options.probe.kind = value_named(store, measurable_stores(), "store for a disk");
  options.probe.block_sizes.clear();
  for (const std::string& block : comma_separated(blocks))
    options.probe.block_sizes.push_back(size_in("--blocks", block));
  options.probe.queue_depths.clear();
  for (const std::string& depth : comma_separated(depths))
    options.probe.queue_depths.push_back(count_in("--depths", depth));
  return measure_disk(options);
}

int print_version() {
  std::string served;
  for (const std::string& minor : find_installation(own_path()).served) (served += ' ') += minor;
  std::cout << "spillway " << SPILLWAY_VERSION << "\nserves LibTorch"
            << (served.empty() ? " versions: none installed" : served) << '\n';
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
