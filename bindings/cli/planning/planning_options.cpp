#include "planning/planning_options.h"

#include "command_line.h"
#include "planning/job_options.h"
#include "planning/machine_names.h"
#include "spillway/base/error.h"
#include "spillway/planner/strategies.h"

namespace spillway::cli {

namespace {

std::string strategies_help() {
  std::string text = "Planning strategy:";
  for (const planner::Strategy& strategy : planner::strategies())
    text += message(" {} ({});", strategy.name, strategy.summary);
  text.back() = ' ';
  return text;
}

std::string default_strategy() { return message("[{}]", planner::strategies().front().name); }

void add_common_options(CommandLine& line, CommonOptions& options, CommandLine::Need profile,
                        const std::string& more_strategies) {
  line.add_argument("PROFILE", options.profile,
                    "Profile of a training step, as `spillway profile` recorded it", profile);
  line.add_text(
      "--budget", options.budget, "SIZE|PERCENT%",
      "Memory for tensors; a percentage is a share of the step's peak need (the `needed` line). "
      "In `run` a percentage is a share of the usable memory instead; the `budget` line says "
      "which size to give there");
  line.add_text("--strategy", options.strategy, "NAME",
                strategies_help() + more_strategies + default_strategy());
  line.add_text("--rates", options.rates.rates, "FILE",
                "Bandwidths of disks, as `spillway bench-io` measured them on this machine or on "
                "another one");
  line.add_text("--nvme", options.rates.nvme, "DIR,...",
                "Directories of the --rates file to spill to; several are used in parallel [the "
                "only directory of the file]");
  line.add_text("--link-out", options.rates.link_out, "GB/s",
                "Bandwidth of a link out of memory, which replaces the disk; both directions run "
                "at the same time and slow down nothing else");
  line.add_text("--link-in", options.rates.link_in, "GB/s", "Bandwidth of that link into memory");
  line.add_text("--duplex", options.rates.duplex, "SHARE",
                "Share of each bandwidth that is left while both directions run, above 0 and at "
                "most 1 [1]");
  line.add_text(
      "--host-memory", options.rates.host_memory, "SIZE",
      "Memory behind the link that holds swapped data; the rest goes on to disks, whose "
      "bandwidths are those of --rates or of --disk-out and --disk-in, or all as in a profile that "
      "has both tiers [as there, else no limit]");
  line.add_text("--disk-out", options.rates.disk_out, "GB/s",
                "Write bandwidth of the disks behind --host-memory");
  line.add_text("--disk-in", options.rates.disk_in, "GB/s",
                "Read bandwidth of the disks behind --host-memory");
  line.add_text("--gpu", options.rates.gpu, "NAME",
                "GPU of the --rates file whose link leads to --host-memory, where --link-out and "
                "--link-in are left out [the only one of the file]");
  line.add_text("--effort", options.effort, "SECONDS",
                "Time limit of the search, which then returns its best plan so far; published "
                "strategies have no limit [10; 2 for each of several]");
  line.add_text("--bound", options.bound, "quick|tight",
                "Method for the lower bound of the step time; tight also solves a linear "
                "program, which takes seconds for long steps [quick]");
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
      "File for the plan, which `simulate`, `run --plan` and --check read. With --ranks, a name "
      "that ends in .csv gets only the action lists, in the form of PyTorch's pipelining where "
      "it can run them");
  line.add_flag(
      "--frontier", options.frontier,
      "Plan for several budgets, from the smallest possible one to the step's peak need; a "
      "following FILE.svg or FILE.png gets a chart of them");
  line.add_hidden_text("--picture", options.picture);  // What stands behind --frontier.
  line.add_text("--points", options.points, "COUNT", "Number of budgets of --frontier [9]");
  add_job_options(line, options.job);
}

void add_simulate_options(CommandLine& line, SimulateOptions& options) {
  add_common_options(line, options.common, CommandLine::Need::kRequired, "");
  line.add_text("--plan", options.plan, "FILE",
                "Stored plan to simulate [a plan made for --budget]");
  line.add_text("--trace", options.trace, "FILE",
                "File for the predicted step, as a trace for ui.perfetto.dev and chrome://tracing");
  line.add_text("--beside", options.beside, "FILE",
                "Trace that `spillway run --trace` wrote; its latest step with the same operators "
                "is compared "
                "with the predicted one and added to the file of --trace");
  line.add_text(
      "--cluster", options.cluster, "FILE|NAME",
      "Machine to run a plan for many ranks on, as a description or the name of a bundled one; the "
      "plan (`spillway plan --ranks --out`) takes the place of the profile [the --topology of the "
      "plan]");
  line.add_text(
      "--ranks", options.ranks, "COUNT",
      "With a plan for many ranks: devices to use, a multiple of the ranks of one pipeline [the "
      "ranks of the plan]");
  line.add_text(
      "--speedup", options.speedup, "FACTOR",
      "With a plan for many ranks: compute speed of the devices relative to those that were "
      "profiled; machine descriptions do not say [1]");
  line.add_text(
      "--placement", options.placement, alternatives(kPlacements),
      "With a plan for many ranks: which ranks are neighbours: the ranks of a pipeline in order, "
      "the "
      "same with its two ends side by side, or the equal ranks of all pipelines [pipeline]");
  line.add_text(
      "--update", options.update, alternatives(kUpdatePlaces),
      "With a plan for many ranks: place where parameters are updated; for hosts, gradients are "
      "copied out and weights back while other stages compute [devices]");
  line.add_text("--swap-to", options.swap_to, alternatives(kSwapTargets),
                "With a plan for many ranks: destination of swapped data, host memory or disk [as "
                "in the plan]");
  line.add_text(
      "--stragglers", options.stragglers, "SHARE",
      "With a plan for many ranks: scale of a half-normal slowdown of each device; each takes 1 + "
      "SHARE * |z| times as long, z standard normal [as in the description]");
}

}  // namespace spillway::cli
