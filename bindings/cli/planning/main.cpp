// The program that `spillway plan`, `spillway simulate` and `spillway profile --import` become.
#include <iostream>
#include <string>
#include <vector>

#include "command_line.h"
#include "exit_codes.h"
#include "planning/import_command.h"
#include "planning/planning_help.h"
#include "planning/planning_options.h"
#include "profile_options.h"
#include "spillway/base/clock.h"
#include "spillway/base/error.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

int plan(const Words& words) {
  CommandLine line("plan", kPlanDescription,
                   "spillway plan [options] PROFILE\n"
                   "       spillway plan --ranks COUNT [options] PROFILE\n"
                   "       spillway plan --costs FILE --ranks COUNT [--partitioner NAME]\n"
                   "       spillway plan --check FILE",
                   kPlanExamples);
  PlanOptions given;
  add_plan_options(line, given);
  if (!line.parse(split_frontier(words))) return kDone;
  return plan_from_profile(given, std::cout, SteadyClock());
}

int simulate(const Words& words) {
  CommandLine line("simulate", kSimulateDescription,
                   "spillway simulate [options] PROFILE\n"
                   "       spillway simulate [--cluster FILE|NAME] [options] PLAN",
                   kSimulateExamples);
  SimulateOptions given;
  add_simulate_options(line, given);
  if (!line.parse(words)) return kDone;
  return simulate_plan(given, std::cout, SteadyClock());
}

int import(const Words& words) {
  ProfileOptions given;
  CommandLine line = profile_command_line(given);
  if (!line.parse(words)) return kDone;
  return import_profile(given, line.given_settings());
}

int dispatch(const Words& words) {
  const std::string command = words.empty() ? "" : words.front();
  const Words rest(words.empty() ? words.end() : words.begin() + 1, words.end());
  if (command == "plan") return plan(rest);
  if (command == "simulate") return simulate(rest);
  if (command == "profile") return import(rest);
  throw ConfigError(
      "this program serves `spillway plan`, `spillway simulate` and `spillway profile "
      "--import` (see spillway --help)");
}

}  // namespace
}  // namespace spillway::cli

int main(int count, char** words) {
  return spillway::cli::exit_code_of(&spillway::cli::dispatch, count, words);
}
