#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "bench_command.h"
#include "child_output.h"
#include "command_line.h"
#include "doctor_command.h"
#include "exit_codes.h"
#include "help_text.h"
#include "installation.h"
#include "profile_command.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "trials.h"

namespace spillway::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// What makes the program, in the folder of a build or beside an installed command.
std::string how_to_get_it(const fs::path& prefix) {
  std::error_code error;
  if (fs::exists(prefix / "CMakeCache.txt", error))
    return message("build it: cmake --build {} --target spillway_planning_program",
                   shell_word(prefix.string()));
  return "build all of Spillway and install it there: cmake --build --preset release && cmake "
         "--install build/release --prefix " +
         shell_word(prefix.string());
}

/// Becomes the program that plans and reads published traces, beside this one: it takes longer to
/// compile than all that runs a trainer, and nobody who runs one needs it. Throws ConfigError when
/// it is not there, with how to get it, or cannot be started.
[[noreturn]] void hand_to_planning(const std::string& command, Words words) {
  const fs::path folder = fs::path(own_path()).parent_path();
  const std::string program = (folder / "spillway-planning").string();
  words.insert(words.begin(), {program, command});
  ::execv(program.c_str(), exec_arguments(words).data());
  const int reason = errno;
  if (reason == ENOENT)
    throw ConfigError("there is no {}, which `spillway {}` needs ({})", shell_word(program),
                      command, how_to_get_it(folder.parent_path()));
  throw ConfigError("cannot start {}, which `spillway {}` needs: {}", shell_word(program), command,
                    std::strerror(reason));
}

int run(const Words& words) {
  const RunArguments arguments = split_run_arguments(words);
  CommandLine line("run", kRunDescription, "spillway run [options] -- program arguments...",
                   kRunExamples);
  line.add_settings();
  if (!line.parse(arguments.options, words)) return kDone;
  return run_program(line.given_settings(), arguments.program);
}

int profile(const Words& words) {
  if (imports_trace(words)) hand_to_planning("profile", words);
  const RunArguments arguments = split_profile_arguments(words);
  ProfileOptions given;
  CommandLine line = profile_command_line(given);
  if (!line.parse(arguments.options, words)) return kDone;
  return record_profile(line.given_settings(), given, arguments.program);
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
  if (dashes != words.end() && dashes + 1 != words.end()) {
    options.program = *(dashes + 1);
    options.arguments.assign(dashes + 2, words.end());
  }
  return examine(line.given_settings(), options);
}

int bench_io(const Words& words) {
  CommandLine line(
      "bench-io", kBenchDescription,
      "spillway bench-io [options] DIR\n       spillway bench-io [options] --device cuda:0",
      kBenchExamples);
  BenchOptions options;
  LinkBenchOptions link;
  std::optional<std::vector<Bytes>> blocks;
  std::optional<std::vector<std::uint32_t>> depths;
  std::optional<std::uint32_t> repetitions;
  options.rates_path = topology::default_disk_rates_path();
  line.add_argument("DIR", options.directory, "Directory to measure", CommandLine::Need::kOptional);
  line.add_reader("--device", "GPU",
                  "GPU whose link to host memory is measured instead of a directory: cuda:0",
                  [&link](const std::string& text) { link.device = text; },
                  {"cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7"});
  line.add("--file-size", options.probe.file_size, sizes(),
           "Size of the file that is written and read [1GiB]");
  line.add("--blocks", blocks, lists_of(sizes()),
           "Block sizes, of a disk at most 2MiB [512KiB,1MiB,2MiB; of a GPU 256KiB,4MiB,32MiB]");
  line.add("--depths", depths, lists_of(counts()), "Numbers of transfers in flight [1,4,16]");
  line.add("--chunks", link.chunks, lists_of(sizes()),
           "Chunks of a GPU's memory that are mapped and unmapped [2MiB,4MiB,8MiB,32MiB]");
  line.add("--repetitions", repetitions, counts(),
           "Repetitions of each measurement [3; of a GPU 5]");
  line.add("--store", options.probe.kind, one_of(measurable_stores()),
           "I/O interface that writes and reads the file [auto]");
  line.add_text("--rates", options.rates_path, "FILE",
                "File for the result [~/.config/spillway/disks.json]");
  line.excludes("--device", {"--file-size", "--store"}, "which measures a GPU");
  line.needs({"--chunks"}, {"--device"});
  if (!line.parse(words)) return kDone;
  if (options.directory.empty() && link.device.empty())
    throw ConfigError(
        "DIR is missing: directory to measure (the link of a GPU: bench-io --device cuda:0)");
  if (!options.directory.empty() && !link.device.empty())
    throw ConfigError("bench-io measures either the directory {} or {}: leave one of the two out",
                      shown_text(options.directory), shown_text(link.device));
  const auto take = [&](auto& probe, auto& sizes_of_blocks, auto& numbers_in_flight) {
    if (blocks) sizes_of_blocks = *blocks;
    if (depths) numbers_in_flight.assign(depths->begin(), depths->end());
    if (repetitions) probe.repetitions = *repetitions;
  };
  if (!link.device.empty()) {
    link.rates_path = options.rates_path;
    take(link.probe, link.probe.blocks, link.probe.depths);
    return measure_link_of(link);
  }
  take(options.probe, options.probe.block_sizes, options.probe.queue_depths);
  return measure_disk(options);
}

int print_version() {
  const std::string served = find_installation(own_path()).list_of_served();
  std::cout << "spillway " << SPILLWAY_VERSION << "\nserves LibTorch "
            << (served.empty() ? "versions: none installed" : served) << '\n';
  return kDone;
}

std::string overview() {
  std::size_t width = 0;
  for (const CommandSummary& each : kCommands) width = std::max(width, each.name.size());
  std::string text = std::string(kPurpose) + "\n\nUsage: spillway COMMAND ...\n\nCommands:\n";
  for (const auto& [name, summary] : kCommands)
    text += message("  {}{}{}\n", name, std::string(width + 2 - name.size(), ' '), summary);
  return text + '\n' + std::string(kFirstSteps) +
         "\nspillway COMMAND --help, or spillway help COMMAND, explains a command.\n"
         "spillway --version, or spillway version, prints the versions.\n";
}

/// The overview as JSON; `CommandLine` prints that of the options of each command.
void print_table() {
  nlohmann::ordered_json commands;
  for (const auto& [name, summary] : kCommands)
    commands.push_back({{"name", name}, {"summary", summary}});
  std::cout << nlohmann::ordered_json{{"version", SPILLWAY_VERSION},
                                      {"purpose", kPurpose},
                                      {"commands", commands},
                                      {"examples", kFirstSteps}}
            << '\n';
}

[[noreturn]] void refuse_command(const std::string& command) {
  if (command.front() == '-')
    throw ConfigError("options stand behind a command: spillway run {} ... (see spillway --help)",
                      command);
  std::vector<std::string_view> names;
  for (const CommandSummary& each : kCommands) names.push_back(each.name);
  throw ConfigError("unknown command '{}'{}", command, hint_for(command, names));
}

int dispatch(const Words& words) {
  if (words.empty()) {
    std::cerr << overview();
    return kWrongUsage;
  }
  const std::string& command = words.front();
  const Words rest(words.begin() + 1, words.end());
  if (command == "run") return run(rest);
  if (command == "profile") return profile(rest);
  if (command == "doctor") return doctor(rest);
  if (command == "bench-io") return bench_io(rest);
  if (command == kTrialCommand) return run_trial(rest);
  if (command == kGpuTrialCommand) return run_gpu_trial(rest);
  if (command == "--version" || command == "version") return print_version();
  if (command == "--help" || command == "-h" || command == "help") {
    if (!rest.empty() && rest.front() != "--help") return dispatch({rest.front(), "--help"});
    std::cout << overview();
    return kDone;
  }
  if (command == kHelpTable) {
    print_table();
    return kDone;
  }
  for (const CommandSummary& other : kCommands)
    if (command == other.name) hand_to_planning(command, rest);
  refuse_command(command);
}

}  // namespace
}  // namespace spillway::cli

int main(int count, char** words) {
  return spillway::cli::exit_code_of(&spillway::cli::dispatch, count, words);
}
