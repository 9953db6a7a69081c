#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "bench_command.h"
#include "dispatch_key_trial.h"
#include "doctor_command.h"
#include "exit_codes.h"
#include "help_format.h"
#include "help_text.h"
#include "installation.h"
#include "planning/planning_options.h"
#include "profile_command.h"
#include "run_command.h"
#include "setting_options.h"
#include "setting_words.h"
#include "spillway/base/clock.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/named_values.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

constexpr std::array<std::string_view, 6> kCommands{"run",      "profile", "plan",
                                                    "simulate", "doctor",  "bench-io"};

// False when help was asked for and printed.
bool parse(CLI::App& app, Words words) {
  app.allow_extras();
  check_options(app, words);
  std::reverse(words.begin(), words.end());  // CLI11 takes words from the back.
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::RequiredError&) {
    require_positionals(app);
    throw;
  }
  refuse_extras(app);
  return true;
}

int run(const Words& words) {
  const RunArguments arguments = split_run_arguments(words);
  CLI::App app(std::string(kRunDescription), "run");
  app.footer(std::string(kRunExamples));
  app.formatter(std::make_shared<HelpFormat>("spillway run [options] -- program arguments..."));
  SettingOptions settings;
  settings.add_to(app);
  if (!parse(app, arguments.options)) return kDone;
  return run_program(settings.given(), arguments.program);
}

/// An import runs nothing, so nothing of a run has a meaning there.
void refuse_beside_import(const runtime::NamedTexts& given, const std::string& steps,
                          const std::string& kind) {
  const auto refuse = [](const std::string& option, const std::string& value) {
    throw ConfigError("--{} {} is for a program that runs, and --import runs none (leave it out)",
                      option, value);
  };
  for (const auto& [key, value] : given) refuse(key, value);
  if (!steps.empty()) refuse("steps", steps);
  if (!kind.empty()) refuse("kind", kind);
}

int profile(const Words& words) {
  const ProfileArguments arguments = split_profile_arguments(words);
  CLI::App app(std::string(kProfileDescription), "profile");
  app.footer(std::string(kProfileExamples));
  app.formatter(std::make_shared<HelpFormat>(
      "spillway profile --out FILE [options] -- program arguments...\n"
      "       spillway profile --import FORMAT TRACE --out FILE [options]"));
  std::string steps, kind;
  ImportOptions import;
  app.add_option("--out", import.out, "Where the profile is written, as JSON")->type_name("FILE");
  app.add_option("--steps", steps,
                 "End the program once a step has come so often [it runs to its end]")
      ->type_name("COUNT");
  app.add_option(
         "--kind", kind,
         "Of which kind of step, where a trainer has several (other shapes, or a validation "
         "behind some steps, which belongs to them): 1 is the one that comes most often, 2 "
         "the next [1]")
      ->type_name("COUNT");
  app.add_option("--import", import.format, "Make a profile of a published trace instead")
      ->type_name(import_formats());
  app.add_option("TRACE", import.file, "The trace to import");
  app.add_option("--tensor-parallel", import.tensor_parallel,
                 "For piper: into how many parts each layer is split [1]")
      ->type_name("COUNT");
  app.add_option("--micro-batches", import.micro_batches,
                 "For piper: how many of them a layer works on at once [1]")
      ->type_name("COUNT");
  SettingOptions settings;
  settings.add_to(app, {}, {"profile-out", "profile-steps", "profile-kind"});
  if (!parse(app, arguments.options)) return kDone;
  if (!arguments.imports)
    return record_profile(settings.given(), import.out, steps, kind, arguments.program);
  refuse_beside_import(settings.given(), steps, kind);
  if (import.file.empty())
    throw ConfigError("the trace to import is missing (spillway profile --import {} TRACE --out "
                      "FILE)",
                      import.format);
  return import_profile(import);
}

int doctor(const Words& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  CLI::App app(std::string(kDoctorDescription), "doctor");
  app.footer(std::string(kDoctorExamples));
  app.formatter(std::make_shared<HelpFormat>("spillway doctor [options] [-- program]"));
  DoctorOptions options;
  bool skips_disks = false;
  app.add_flag("--json", options.json, "Print the report as JSON")->disable_flag_override();
  app.add_flag("--skip-disks", skips_disks, "Do not measure disks (saves some seconds)")
      ->disable_flag_override();
  SettingOptions settings;
  settings.add_to(app, {"budget", "nvme", "reserve", "store", "mapper", "rates", "config"});
  if (!parse(app, Words(words.begin(), dashes))) return kDone;
  options.measures_disks = !skips_disks;
  if (dashes != words.end() && dashes + 1 != words.end()) options.program = *(dashes + 1);
  return examine(settings.given(), options);
}

int bench_io(const Words& words) {
  CLI::App app(std::string(kBenchDescription), "bench-io");
  app.footer(std::string(kBenchExamples));
  app.formatter(std::make_shared<HelpFormat>("spillway bench-io [options] DIR"));
  BenchOptions options;
  std::string size = "1GiB", blocks = "512KiB,1MiB,2MiB", depths = "1,4,16", store = "auto",
              repetitions = std::to_string(options.probe.repetitions);
  options.rates_path = topology::default_disk_rates_path();
  app.add_option("DIR", options.directory, "The directory to measure")->required();
  app.add_option("--file-size", size, "Size of the file that is written and read [1GiB]")
      ->type_name("SIZE");
  app.add_option("--blocks", blocks, "Block sizes, at most 2MiB [512KiB,1MiB,2MiB]")
      ->type_name("SIZE,...");
  app.add_option("--depths", depths, "Transfers in flight [1,4,16]")->type_name("COUNT,...");
  app.add_option("--repetitions", repetitions, "Passes of each kind [3]")->type_name("COUNT");
  app.add_option("--store", store, "How it is written and read [auto]")
      ->type_name(alternatives(measurable_stores()));
  app.add_option("--rates", options.rates_path,
                 "File that keeps the result [~/.config/spillway/disks.json]")
      ->type_name("FILE");
  if (!parse(app, words)) return kDone;
  options.probe.file_size = size_in("--file-size", size);
  options.probe.repetitions = count_in("--repetitions", repetitions);
  options.probe.kind = value_named(store, measurable_stores(), "store for a disk");
  options.probe.block_sizes.clear();
  for (const std::string& block : listed_words(blocks))
    options.probe.block_sizes.push_back(size_in("--blocks", block));
  options.probe.queue_depths.clear();
  for (const std::string& depth : listed_words(depths))
    options.probe.queue_depths.push_back(count_in("--depths", depth));
  return measure_disk(options);
}

int plan(const Words& words) {
  CLI::App app(std::string(kPlanDescription), "plan");
  app.footer(std::string(kPlanExamples));
  app.formatter(std::make_shared<HelpFormat>(
      "spillway plan [options] PROFILE\n"
      "       spillway plan --ranks COUNT [options] PROFILE\n"
      "       spillway plan --costs FILE --ranks COUNT [--partitioner NAME]\n"
      "       spillway plan --check FILE"));
  PlanWords given;
  add_plan_options(app, given);
  if (!parse(app, split_frontier(words))) return kDone;
  return plan_from_profile(given, std::cout, SteadyClock());
}

int simulate(const Words& words) {
  CLI::App app(std::string(kSimulateDescription), "simulate");
  app.footer(std::string(kSimulateExamples));
  app.formatter(std::make_shared<HelpFormat>(
      "spillway simulate [options] PROFILE\n"
      "       spillway simulate [--cluster FILE|NAME] [options] PLAN"));
  SimulateWords given;
  add_simulate_options(app, given);
  if (!parse(app, words)) return kDone;
  return simulate_plan(given, std::cout, SteadyClock());
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
  if (command == "plan") return plan(rest);
  if (command == "simulate") return simulate(rest);
  if (command == "profile") return profile(rest);
  if (command == "doctor") return doctor(rest);
  if (command == "bench-io") return bench_io(rest);
  if (command == kTrialCommand) return run_trial(rest);
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

int guarded(const Words& words) {
  try {
    return dispatch(words);
  } catch (const std::bad_alloc&) {
    log_error("memory ran out (give the command more; ulimit -v and the control group limit it)");
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
  return kWrongUsage;
}

/// What was printed has to arrive: an empty file is no result.
int finished(int code) {
  if (std::cout.flush()) return code;
  log_error("cannot write to standard output (free some room where it goes, or send it elsewhere)");
  return code == kDone ? kWrongUsage : code;
}

}  // namespace
}  // namespace spillway::cli

int main(int count, char** words) {
  return spillway::cli::finished(
      spillway::cli::guarded(std::vector<std::string>(words + 1, words + count)));
}
