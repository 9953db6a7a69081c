#include "planning/planning_options.h"

#include <CLI/CLI.hpp>

#include "planning/job_options.h"
#include "planning/machine_words.h"
#include "spillway/base/error.h"
#include "spillway/planner/strategies.h"

namespace spillway::cli {

namespace {

std::string strategies_help() {
  std::string text = "How to plan:";
  for (const planner::Strategy& strategy : planner::strategies())
    text += message(" {} ({});", strategy.name, strategy.summary);
  text.back() = ' ';
  return text;
}

std::string default_strategy() { return message("[{}]", planner::strategies().front().name); }

void add_text(CLI::App& app, const char* name, std::string& word, const char* type,
              const std::string& meaning) {
  app.add_option(name, word, meaning)->type_name(type);
}

void add_common_options(CLI::App& app, PlanningWords& words) {
  app.add_option("PROFILE", words.profile, "The step, as `spillway profile` recorded it")
      ->required();
  add_text(app, "--budget", words.budget, "SIZE|PERCENT%",
           "Memory for tensors; a percentage is a share of what the step needs (in `run` one of "
           "what can be used; the output says what to give there)");
  add_text(app, "--strategy", words.strategy, "NAME", strategies_help() + default_strategy());
  add_text(app, "--rates", words.rates.rates, "FILE",
           "Rates of disks, as `spillway bench-io` measured them, on this machine or another one");
  add_text(app, "--nvme", words.rates.nvme, "DIR,...",
           "The directories of that file to spill to; several are used in parallel [the only one]");
  add_text(app, "--link-out", words.rates.link_out, "GB/s",
           "Rate of a link out of memory, instead of a disk's; both directions run at once and "
           "slow nothing else down");
  add_text(app, "--link-in", words.rates.link_in, "GB/s", "Its rate into memory");
  add_text(app, "--duplex", words.rates.duplex, "SHARE",
           "What is left of either rate while both directions run, above 0 up to 1 [1]");
  add_text(
      app, "--host-memory", words.rates.host_memory, "SIZE",
      "Memory behind the link, for what leaves; the rest goes on to disks, those of --rates or "
      "of --disk-out and --disk-in [as much as is needed]");
  add_text(app, "--disk-out", words.rates.disk_out, "GB/s", "Rate of writing to these disks");
  add_text(app, "--disk-in", words.rates.disk_in, "GB/s", "Rate of reading from them");
  add_text(app, "--effort", words.effort, "SECONDS",
           "Time after which our own strategies end their search with the best plan so far; "
           "published ones take what they take [10; 2 for each of several]");
  add_text(app, "--bound", words.bound, "quick|tight",
           "How hard to prove what no plan can beat; tight solves a linear program, too, and takes "
           "seconds for long steps [quick]");
  app.add_flag("--json", words.json, "Print JSON (bindings/cli/planning_output.md has the keys)")
      ->disable_flag_override();
}

}  // namespace

void add_plan_options(CLI::App& app, PlanWords& words) {
  add_common_options(app, words.common);
  app.get_option("PROFILE")->required(false);  // --check and --costs need none.
  app.get_option("--strategy")
      ->description(strategies_help() + "or all, to compare them " + default_strategy());
  add_text(app, "--out", words.out, "FILE",
           "Store the plan, for `simulate` and `run --plan`, or for --check; with --ranks, a file "
           "that ends in .csv gets the actions alone, as PyTorch's pipelining reads them where it "
           "can run them");
  app.add_flag("--frontier", words.frontier,
               "Plan for budgets from the smallest possible one to all that the step needs; with "
               "a file behind it that ends in .svg or .png, draw them");
  app.add_option("--picture", words.picture)->group("");  // What stands behind --frontier.
  add_text(app, "--points", words.points, "COUNT", "Budgets of the frontier [9]");
  add_job_options(app, words.job);
}

void add_simulate_options(CLI::App& app, SimulateWords& words) {
  add_common_options(app, words.common);
  add_text(app, "--plan", words.plan, "FILE", "A stored plan, instead of one that is made");
  add_text(app, "--trace", words.trace, "FILE",
           "Write the predicted step as a trace for ui.perfetto.dev and chrome://tracing");
  add_text(app, "--beside", words.beside, "FILE",
           "The trace that `spillway run --trace` wrote: its latest step of the same operators is "
           "held against the predicted one, and joins it in the file of --trace");
  add_text(app, "--cluster", words.cluster, "FILE|NAME",
           "Run a plan for many ranks (`spillway plan --ranks --out`), given in place of the "
           "profile, on this description of a machine, or on the one of that name that came with "
           "the command [the machine of --topology that the plan was made for]");
  add_text(app, "--ranks", words.ranks, "COUNT",
           "With a plan for many ranks: on so many of the machine, in as many pipelines of the "
           "plan's as that makes [as many as "
           "the plan has]");
  add_text(app, "--speedup", words.speedup, "FACTOR",
           "With a plan for many ranks: devices compute so many times as fast as those that the "
           "plan was "
           "made for; a description does not say [1]");
  add_text(app, "--placement", words.placement, alternatives(kPlacements).c_str(),
           "With a plan for many ranks: whole pipelines on neighbouring devices, in order or with "
           "the two ends "
           "beside each other, or equal ranks of all pipelines [pipeline]");
  add_text(app, "--update", words.update, alternatives(kUpdatePlaces).c_str(),
           "With a plan for many ranks: where parameters are updated; on hosts, gradients go there "
           "and weights "
           "come back beside the compute of other stages [devices]");
  add_text(app, "--swap-to", words.swap_to, alternatives(kSwapTargets).c_str(),
           "With a plan for many ranks: where that goes what leaves a rank [as the plan says]");
  add_text(app, "--stragglers", words.stragglers, "SHARE",
           "With a plan for many ranks: make each device slower by this share times |z|, z normal "
           "[what the "
           "description says]");
}

}  // namespace spillway::cli
