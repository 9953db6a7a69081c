#include "planning/planning_options.h"

#include <array>

#include "planning/cluster_file.h"
#include "planning/machine_report.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_request.h"
#include "spillway/planner/strategies.h"

namespace spillway::cli {

namespace {

constexpr std::string_view kPlanDescription =
    "Plans one training step of one device under a memory budget from its profile, without the "
    "trainer and for any disk or link. The output has the step time, the bytes swapped out and in, "
    "the recomputation, the peak, and the distance to a proven lower bound. `spillway profile` "
    "records the profile; `spillway plan-job` plans for many devices.";

constexpr std::string_view kPlanExamples =
    R"(Bandwidths are those of --link-out and --link-in or of --rates, else those of the profile, else
guesses; the output says which.

Examples:
  spillway plan step.profile.json --budget 4GiB           will it fit, and how slow will it be?
  spillway plan step.profile.json --budget 50%            with half of what the step needs;
                                                          its "budget" line says what to give to
                                                          `run`, whose shares are of the machine
  spillway plan step.profile.json --frontier              a table over all budgets
  spillway plan step.profile.json --frontier --picture step.svg
                                                          and a picture of it
  spillway plan step.profile.json --budget 4GiB --rates disks.json --nvme /scratch
                                                          with another machine's disk
  spillway plan step.profile.json --budget 16GiB --link-out 12 --link-in 12
                                                          over a link of 12 GB/s either way
  spillway plan step.profile.json --budget 16GiB --link-out 25 --link-in 25 \
                --host-memory 64GiB --disk-out 3 --disk-in 6
                                                          with 64 GiB of memory behind the link,
                                                          and disks behind that
  spillway plan step.profile.json --budget 4GiB --strategy all
                                                          a table with published strategies
  spillway plan step.profile.json --budget 4GiB --out step.plan.json
                                                          the plan is stored

Exit codes: 0 planned, 2 wrong options, files or rates, or a budget that is too small.
)";

constexpr std::string_view kSimulateDescription =
    "Simulates a step under a stored plan, or under a plan made for --budget, and prints its "
    "predicted times. --trace writes every operator, stall and transfer of the predicted step to a "
    "file for Perfetto and Chrome; the lanes are compute, write-out, read-in, host copy, the disks "
    "behind host memory where there are some, and resident bytes. A plan for many ranks runs on a "
    "described machine, whose links all ranks share: the machine of --cluster, else the one that "
    "the plan was made for.";

constexpr std::string_view kSimulateExamples =
    R"(Examples:
  spillway simulate step.profile.json --plan step.plan.json --trace step.json
                                      open step.json in https://ui.perfetto.dev
  spillway simulate step.profile.json --budget 4GiB --trace step.json
                                      plan and simulate in one call
  spillway simulate step.profile.json --plan step.plan.json --link-out 6 --link-in 6
                                      the same plan on a link of half the rate
  spillway run --plan step.plan.json --trace run.json -- ./trainer
  spillway simulate step.profile.json --plan step.plan.json --beside run.json --trace both.json
                                      predicted and real step in one trace, and the operators that
                                      differ most
  spillway simulate job.json --cluster dgx_h200 --ranks 4096
                                      a plan for many ranks (spillway plan-job) on a machine
  spillway simulate job.json --ranks 4096
                                      the same on the machine that it was planned for

Exit codes: 0 simulated, 2 wrong options or files, or a plan for another step.
)";

constexpr std::array<Named<BoundEffort>, 2> kBoundEfforts{
    {{"quick", BoundEffort::kQuick}, {"tight", BoundEffort::kTight}}};

enum class HowMany : std::uint8_t { kOne, kOneOrAll };

ValueKind<std::vector<planner::Strategy>> strategies(HowMany how_many) {
  using List = std::vector<planner::Strategy>;
  const auto read = [=](const std::string& /*option*/, const std::string& text) {
    const auto all = planner::strategies();
    if (how_many == HowMany::kOneOrAll && text == "all") return List(all.begin(), all.end());
    return List{planner::strategy_named(text)};
  };
  return {how_many == HowMany::kOne ? "NAME" : "NAME|all", read, names_of(planner::strategies())};
}

std::string strategies_help(HowMany how_many) {
  return message("Planning strategy, one of those below{} [{}]",
                 how_many == HowMany::kOne ? "" : ", or all, to compare them",
                 planner::strategies().front().name);
}

ValueKind<std::vector<std::string>> directories() {
  return {"DIR,...", [](const std::string& /*option*/, const std::string& text) {
            return directories_in(text);
          }};
}

/// What the published strategies follow.
runtime::NamedTexts sources_of_strategies() {
  runtime::NamedTexts sources;
  for (const planner::Strategy& each : planner::strategies())
    if (!each.source.empty()) sources.emplace_back(each.name, each.source);
  return sources;
}

void add_search_options(CommandLine& line, CommonOptions& options, HowMany how_many) {
  constexpr double kMostSeconds = 1e5;
  line.add(
      "--budget", options.budget, budgets(),
      "Memory for tensors; a percentage is a share of the step's peak need (the `needed` line). "
      "In `run` a percentage is a share of the usable memory instead; the `budget` line says "
      "which size to give there");
  line.add("--strategy", options.strategies, strategies(how_many), strategies_help(how_many));
  line.add("--effort", options.effort, numbers("SECONDS", 0.0, kMostSeconds),
           "Time limit of the search, which then returns its best plan so far; published "
           "strategies have no limit [10; 2 for each of several]");
  line.add("--bound", options.bound, one_of(kBoundEfforts),
           "Method for the lower bound of the step time; tight also solves a linear program, which "
           "takes seconds for long steps [quick]");
  line.add_names("Strategies", meanings_of(planner::strategies()));
  line.add_names("Sources of strategies", sources_of_strategies());
}

void add_rates_of_device(CommandLine& line, RateOptions& rates) {
  add_rate_options(
      line, rates,
      "Bandwidth of a link out of memory, which replaces the disk; both directions run at the same "
      "time and slow down nothing else",
      "Memory behind the link that holds swapped data; the rest goes on to disks, whose bandwidths "
      "are those of --rates or of --disk-out and --disk-in, or all as in a profile that has both "
      "tiers [as there, else no limit]");
}

}  // namespace

void add_link_options(CommandLine& line, RateOptions& rates, const std::string& link) {
  line.add("--link-out", rates.link_out, cli::rates(), link);
  line.add("--link-in", rates.link_in, cli::rates(), "Bandwidth of that link the other way");
  line.add("--duplex", rates.duplex, numbers("SHARE", profile::kLeastDuplexShare, 1.0),
           "Share of each bandwidth that is left while both directions run, above 0 and at most 1 "
           "[1]");
  line.needs({"--link-out", "--duplex"}, {"--link-in"});
  line.needs({"--link-in"}, {"--link-out"});
}

void add_rate_options(CommandLine& line, RateOptions& rates, const std::string& link,
                      const std::string& memory) {
  line.begin_group(kLinksAndDisks);
  line.add_text("--rates", rates.rates, "FILE",
                "Bandwidths that `spillway bench-io` measured, on this machine or another");
  line.add("--nvme", rates.nvme, directories(),
           "Directories of the --rates file to spill to; several are used in parallel [the only "
           "directory of the file]");
  add_link_options(line, rates, link);
  line.add("--host-memory", rates.host_memory, sizes(), memory);
  line.add("--disk-out", rates.disk_out, cli::rates(),
           "Write bandwidth of the disks behind --host-memory");
  line.add("--disk-in", rates.disk_in, cli::rates(),
           "Read bandwidth of the disks behind --host-memory");
  line.add_text("--gpu", rates.gpu, "NAME",
                "GPU of the --rates file whose link leads to --host-memory [the only one]");
  line.needs({"--disk-out"}, {"--disk-in"});
  line.needs({"--disk-in"}, {"--disk-out"});
  line.needs({"--disk-out"}, {"--host-memory"});
  line.needs({"--gpu"}, {"--rates"});
  line.excludes("--link-out", {"--gpu"}, "which is another link");
  line.excludes("--disk-out", {"--nvme"}, "which are other disks");
}

CommandLine plan_line(PlanOptions& options) {
  CommandLine line("plan", kPlanDescription,
                   "spillway plan --budget SIZE [options] PROFILE\n"
                   "       spillway plan --frontier [options] PROFILE",
                   kPlanExamples);
  line.add_argument("PROFILE", options.common.profile,
                    "Profile of a training step, as `spillway profile` recorded it",
                    CommandLine::Need::kRequired);
  line.begin_group("What to plan");
  add_search_options(line, options.common, HowMany::kOneOrAll);
  line.add_flag("--frontier", options.frontier,
                "Plan for several budgets, from the smallest possible one to the step's peak need");
  line.add("--points", options.points, counts(2, 1000), "Number of budgets of --frontier [9]");
  add_rates_of_device(line, options.common.rates);
  line.begin_group(kOutput);
  line.add_text("--out", options.out, "FILE",
                "File for the plan, which `simulate --plan` and `run --plan` read");
  line.add_text("--picture", options.picture, "FILE",
                "Chart of --frontier to draw; its name ends in .svg or .png");
  line.add_flag("--json", options.common.json, kKeysOfJson);
  line.needs({"--points", "--picture"}, {"--frontier"});
  line.excludes("--frontier", {"--budget"}, "which plans for all budgets");
  line.excludes("--frontier", {"--out"}, "which makes many plans");
  line.require({"--budget", "--frontier"}, "name one (4GiB, 50%), or ask for all with --frontier");
  return line;
}

CommandLine simulate_line(SimulateOptions& step, ClusterOptions& job) {
  constexpr double kMostFactor = 1e3;
  const auto ranks = counts(1, job::kMostRanksOfJob);
  CommandLine line("simulate", kSimulateDescription,
                   "spillway simulate [options] PROFILE\n"
                   "       spillway simulate [options] PLAN",
                   kSimulateExamples);
  line.add_argument("PROFILE|PLAN", step.common.profile,
                    "Profile of a training step, or a plan that `spillway plan-job --out` stored",
                    CommandLine::Need::kRequired);
  line.add_text("--trace", step.trace, "FILE",
                "File for the predicted step, as a trace for ui.perfetto.dev and chrome://tracing");
  line.add_flag("--json", step.common.json, kKeysOfJson);
  line.begin_group(kOptionsOfJobs);
  line.add("--cluster", job.cluster, clusters(),
           "Machine to run the plan on, as a description or the name of a bundled one [the "
           "--cluster of the plan]");
  line.add("--ranks", job.ranks, ranks,
           "Devices to use, a multiple of the ranks of one pipeline [the ranks of the plan]");
  line.add("--speedup", job.speedup, numbers("FACTOR", 1.0 / kMostFactor, kMostFactor),
           "Compute speed of the devices relative to those that were profiled; machine "
           "descriptions do not say [1]");
  line.add("--placement", job.placement, one_of(kPlacements),
           "Which ranks are neighbours: the ranks of a pipeline in order, the same with its two "
           "ends side by side, or the equal ranks of all pipelines [pipeline]");
  line.add("--update", job.update, one_of(kUpdatePlaces),
           "Place where parameters are updated; for hosts, gradients are copied out and weights "
           "back while other stages compute [devices]");
  line.add("--swap-to", job.swap_to, one_of(kSwapTargets),
           "Destination of swapped data, host memory or disk [as in the plan]");
  line.add("--stragglers", job.stragglers, numbers("SHARE", 0.0, kMostFactor),
           "Scale of a half-normal slowdown of each device; each takes 1 + SHARE * |z| times as "
           "long, z standard normal [as in the description]");
  line.begin_group(kOptionsOfSteps);
  line.add_text("--plan", step.plan, "FILE", "Stored plan to simulate [a plan made for --budget]");
  line.add_text("--beside", step.beside, "FILE",
                "Trace that `spillway run --trace` wrote; its latest step with the same operators "
                "is compared with the predicted one and added to the file of --trace");
  add_search_options(line, step.common, HowMany::kOne);
  add_rates_of_device(line, step.common.rates);
  line.excludes("--plan", {"--budget", "--strategy", "--effort"}, "which has its own");
  return line;
}

}  // namespace spillway::cli
