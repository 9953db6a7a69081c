#include "planning/planning_options.h"

#include "command_line.h"
#include "planning/job_options.h"
#include "planning/machine_names.h"
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

void add_common_options(CommandLine& line, CommonOptions& options, CommandLine::Need profile,
                        const std::string& more_strategies) {
  line.add_argument("PROFILE", options.profile, "The step, as `spillway profile` recorded it",
                    profile);
  line.add_text(
      "--budget", options.budget, "SIZE|PERCENT%",
      "Memory for tensors; a percentage is a share of what the step needs (in `run` one of "
      "what can be used; the output says what to give there)");
  line.add_text("--strategy", options.strategy, "NAME",
                strategies_help() + more_strategies + default_strategy());
  line.add_text(
      "--rates", options.rates.rates, "FILE",
      "Rates of disks, as `spillway bench-io` measured them, on this machine or another one");
  line.add_text(
      "--nvme", options.rates.nvme, "DIR,...",
      "The directories of that file to spill to; several are used in parallel [the only one]");
  line.add_text(
      "--link-out", options.rates.link_out, "GB/s",
      "Rate of a link out of memory, instead of a disk's; both directions run at once and "
      "slow nothing else down");
  line.add_text("--link-in", options.rates.link_in, "GB/s", "Its rate into memory");
  line.add_text("--duplex", options.rates.duplex, "SHARE",
                "What is left of either rate while both directions run, above 0 up to 1 [1]");
  line.add_text(
      "--host-memory", options.rates.host_memory, "SIZE",
      "Memory behind the link, for what leaves; the rest goes on to disks, those of --rates or "
      "of --disk-out and --disk-in [as much as is needed]");
  line.add_text("--disk-out", options.rates.disk_out, "GB/s", "Rate of writing to these disks");
  line.add_text("--disk-in", options.rates.disk_in, "GB/s", "Rate of reading from them");
  line.add_text("--effort", options.effort, "SECONDS",
                "Time after which our own strategies end their search with the best plan so far; "
                "published ones take what they take [10; 2 for each of several]");
  line.add_text(
      "--bound", options.bound, "quick|tight",
      "How hard to prove what no plan can beat; tight solves a linear program, too, and takes "
      "seconds for long steps [quick]");
  line.add_flag("--json", options.json,
                "Print JSON (bindings/cli/planning_output.md has the keys)");
}

}  // namespace

void add_plan_options(CommandLine& line, PlanOptions& options) {
  // --check and --costs need no profile.
  add_common_options(line, options.common, CommandLine::Need::kOptional,
                     "or all, to compare them ");
  line.add_text(
      "--out", options.out, "FILE",
      "Store the plan, for `simulate` and `run --plan`, or for --check; with --ranks, a file "
      "that ends in .csv gets the actions alone, as PyTorch's pipelining reads them where it "
      "can run them");
  line.add_flag("--frontier", options.frontier,
                "Plan for budgets from the smallest possible one to all that the step needs; with "
                "a file behind it that ends in .svg or .png, draw them");
  line.add_hidden_text("--picture", options.picture);  // What stands behind --frontier.
  line.add_text("--points", options.points, "COUNT", "Budgets of the frontier [9]");
  add_job_options(line, options.job);
}

void add_simulate_options(CommandLine& line, SimulateOptions& options) {
  add_common_options(line, options.common, CommandLine::Need::kRequired, "");
  line.add_text("--plan", options.plan, "FILE", "A stored plan, instead of one that is made");
  line.add_text("--trace", options.trace, "FILE",
                "Write the predicted step as a trace for ui.perfetto.dev and chrome://tracing");
  line.add_text(
      "--beside", options.beside, "FILE",
      "The trace that `spillway run --trace` wrote: its latest step of the same operators is "
      "held against the predicted one, and joins it in the file of --trace");
  line.add_text(
      "--cluster", options.cluster, "FILE|NAME",
      "Run a plan for many ranks (`spillway plan --ranks --out`), given in place of the "
      "profile, on this description of a machine, or on the one of that name that came with "
      "the command [the machine of --topology that the plan was made for]");
  line.add_text(
      "--ranks", options.ranks, "COUNT",
      "With a plan for many ranks: on so many of the machine, in as many pipelines of the "
      "plan's as that makes [as many as "
      "the plan has]");
  line.add_text(
      "--speedup", options.speedup, "FACTOR",
      "With a plan for many ranks: devices compute so many times as fast as those that the "
      "plan was "
      "made for; a description does not say [1]");
  line.add_text(
      "--placement", options.placement, alternatives(kPlacements),
      "With a plan for many ranks: whole pipelines on neighbouring devices, in order or with "
      "the two ends "
      "beside each other, or equal ranks of all pipelines [pipeline]");
  line.add_text(
      "--update", options.update, alternatives(kUpdatePlaces),
      "With a plan for many ranks: where parameters are updated; on hosts, gradients go there "
      "and weights "
      "come back beside the compute of other stages [devices]");
  line.add_text(
      "--swap-to", options.swap_to, alternatives(kSwapTargets),
      "With a plan for many ranks: where that goes what leaves a rank [as the plan says]");
  line.add_text(
      "--stragglers", options.stragglers, "SHARE",
      "With a plan for many ranks: make each device slower by this share times |z|, z normal "
      "[what the "
      "description says]");
}

}  // namespace spillway::cli
