#include <array>

#include "planning/cluster_file.h"
#include "planning/planning_options.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::cli {

namespace {

constexpr std::string_view kJobDescription =
    "Plans one training step of a model on many devices, its ranks, from the profile of one "
    "micro-batch, that is of a trainer whose batch has that size. The plan cuts the model into "
    "stages and has a schedule; the output has the step time, what each rank holds, and the "
    "distance to a proven lower bound.";

constexpr std::string_view kJobExamples =
    R"(A rank is a device. --ranks 8 --replicas 2 makes two pipelines of four ranks; each gets half of
the micro-batches, and both sum their gradients at the end of the step.

Examples:
  spillway plan-job step.profile.json --ranks 4 --device-memory 8GiB --micro-batches 8
                                          the fastest schedule that fits, where to cut, and what
                                          each rank holds
  spillway plan-job step.profile.json --ranks 4 --device-memory 2GiB --micro-batches 8 \
                --link 12 --link-out 12 --link-in 12 --picture job.svg --out job.plan.json
                                          with messages and swaps over links, a picture of all
                                          ranks, and the plan
  spillway plan-job step.profile.json --ranks 64 --micro-batches 128 --cluster dgx_a100
                                          on a described machine
  spillway plan-job step.profile.json --ranks 4 --micro-batches 8 --schedule 1f1b --partitioner even
                                          this schedule, these cuts
  spillway plan-job step.profile.json --ranks 4 --micro-batches 8 --compare
                                          all schedules and all partitioners
  spillway plan-job step.profile.json --ranks 4 --micro-batches 8 --out actions.csv
                                          the action list of each rank, in the form of PyTorch's
                                          pipelining

Exit codes: 0 planned, 2 wrong options, files or rates, or devices that are too small.
)";

constexpr std::string_view kCheckDescription =
    "Checks a stored plan for many ranks, or CSV action lists as PyTorch's pipelining writes them. "
    "The output names the first fault: a deadlock, messages in another order, memory, or figures "
    "that the actions do not make.";

constexpr std::string_view kCheckExamples =
    R"(Examples:
  spillway check job.plan.json
  spillway check actions.csv

Exit codes: 0 no fault, 2 a fault, or a file that is no plan.
)";

constexpr std::string_view kRebalanceDescription =
    "Layers that a running job should move to neighbouring ranks at the end of a step, from a "
    "newer profile of the same model: in which rounds they move, and after how many steps that "
    "pays. Ranks, schedule, memory and links stay as in the plan.";

constexpr std::string_view kRebalanceExamples =
    R"(Options of memory and links say what the plan leaves open; other values than the plan's are
refused.

Examples:
  spillway rebalance job.plan.json later.profile.json
                                          the fastest step
  spillway rebalance job.plan.json later.profile.json --steps-left 5000 --out next.plan.json
                                          layers move where that pays within 5000 steps; the new
                                          plan is stored

Exit codes: 0 planned, 2 wrong options or files, a profile of another model, or a plan that does not
fit any more.
)";

constexpr std::string_view kCostsDescription = "Cuts a list of layer times for several devices, "
                                               "without a profile: a text file of seconds, one "
                                               "number per layer, between blanks, commas or lines.";

constexpr std::string_view kCostsExamples =
    R"(Examples:
  spillway costs layers.txt --ranks 4
  spillway costs layers.txt --ranks 4 --partitioner torchgpipe
  spillway costs layers.txt --ranks 4 --compare           all partitioners

Exit codes: 0 cut, 2 wrong options, or a file that is no list of times.
)";

constexpr std::array<Named<BranchOrder>, 3> kBranchOrders{{{"auto", BranchOrder::kAuto},
                                                           {"recorded", BranchOrder::kRecorded},
                                                           {"any", BranchOrder::kAny}}};

constexpr const char* kHowManyRanks = "on how many devices is the model to run?";

ValueKind<std::uint32_t> counts_of_job() { return counts(1, job::kMostRanksOfJob); }

ValueKind<std::string_view> partitioner_names() {
  const auto read = [](const std::string& /*option*/, const std::string& text) {
    return partition::partitioner_named(text).name;
  };
  return {"NAME", read, names_of(partition::partitioners())};
}

std::string schedule_help() {
  return message("Schedule, the order of the work of each rank: one of those below, or {}, the "
                 "fastest one that fits and leaves the results of training unchanged [{}]. "
                 "Parameters follow a colon: 1f1b-capped:slots=3, interleaved:chunks=4, "
                 "gems-master:replicas=4; gems-mast:parked or gems-mast:single-owner, for the "
                 "second copy of the weights; any schedule with :stages, :recompute or "
                 ":idle-offload, for the way to save memory. Without parameters the defaults "
                 "apply, and one pipeline unless --replicas names more",
                 job::kAnySchedule, job::kAnySchedule);
}

void add_schedules(CommandLine& line) {
  std::vector<planner_schedule::ScheduleGenerator> with_one, with_several;
  for (const planner_schedule::ScheduleGenerator& each : planner_schedule::schedule_generators())
    (each.stages_per_rank == planner_schedule::StagesPerRank::kOne ? with_one : with_several)
        .push_back(each);
  line.add_names("Schedules with one stage per rank", meanings_of(with_one));
  line.add_names("Schedules with several stages per rank", meanings_of(with_several));
}

template <typename Name>
void add_partitioner(CommandLine& line, Name& name) {
  line.add("--partitioner", name, partitioner_names(),
           message("Partitioner, which cuts the model into stages, one of those below [{}]",
                   partition::partitioners().front().name));
  line.add_names("Partitioners", meanings_of(partition::partitioners()));
}

void add_work_options(CommandLine& line, JobOptions& options) {
  job::JobRequest& request = options.request;
  line.begin_group("What to plan");
  line.add("--ranks", request.ranks, counts_of_job(), "Devices to plan for");
  line.add("--device-memory", request.device_memory, sizes(), "Memory of each device [no limit]");
  line.add("--micro-batches", options.micro_batches, counts_of_job(),
           "Micro-batches of a step, summed over replicas; the profile is of exactly one [the "
           "value of --batch; with --schedule auto the best divisor of it]");
  line.add("--batch", options.batch, counts_of_job(),
           "Work of a step, counted in batches of the profiled trainer: with --batch 8 "
           "--micro-batches 4 each micro-batch is two of them, and takes twice as long [the value "
           "of --micro-batches, else of --ranks]");
  line.add("--replicas", request.data_parallel, counts_of_job(),
           "Data-parallel replicas, that is pipelines which share the micro-batches of a step and "
           "sum their gradients [1; with --schedule auto the best number]");
  line.begin_group("Schedule");
  line.add_reader(
      "--schedule", "NAME|auto", schedule_help(),
      [&request](const std::string& text) { take_schedule(text, request); },
      job::schedule_beginnings());
  line.begin_group("Cuts");
  add_schedules(line);
  add_partitioner(line, request.partitioner);
  line.add("--order", options.order, one_of(kBranchOrders),
           "Order in which the branches of a model are assigned to stages: recorded; any, the best "
           "one that the tensors of the profile allow; or auto, which is any where the profile has "
           "all dependences, as imported profiles do, else recorded [auto]");
  line.require({"--ranks"}, kHowManyRanks);
}

}  // namespace

CommandLine plan_job_line(JobOptions& options) {
  CommandLine line("plan-job", kJobDescription, "spillway plan-job --ranks COUNT [options] PROFILE",
                   kJobExamples);
  line.add_argument("PROFILE", options.profile,
                    "Profile of one micro-batch, as `spillway profile` recorded it",
                    CommandLine::Need::kRequired);
  add_work_options(line, options);
  line.begin_group("Machine");
  line.add("--cluster", options.cluster, clusters(),
           "Machine to plan for, as a description or the name of a bundled one; it sets device "
           "memory, links and disks. Other options may only lower these limits; --host-memory is "
           "then per node");
  line.add("--link", options.request.link.rate, rates(),
           "Bandwidth between any two devices, in each direction [messages take no time]");
  line.add("--ranks-per-host", options.ranks_per_host, counts_of_job(),
           "Neighbouring ranks that share the disks of a host");
  add_rate_options(line, options.rates,
                   "Bandwidth of each device to its host, for swaps [nothing is swapped]",
                   "Host memory of each rank for swapped data. Where it is too small, all of that "
                   "goes to disks, whose bandwidths are those of --rates or of --disk-out and "
                   "--disk-in [no limit]");
  line.begin_group(kOutput);
  line.add_flag("--compare", options.compare,
                "Print one table of all schedules, on one pipeline or as many as --replicas says, "
                "and of all partitioners with the best schedules; with --cluster each row as it "
                "runs on the machine");
  line.add_text("--out", options.out, "FILE",
                "File for the plan, which `simulate`, `check` and `rebalance` read. A name that "
                "ends in .csv gets only the action lists, in the form of PyTorch's pipelining "
                "where it can run them");
  line.add_text("--picture", options.picture, "FILE",
                "Picture to write of the work and the memory of each device over a step; its name "
                "ends in .svg or .png");
  line.add_flag("--json", options.json, kKeysOfJson);
  line.needs({"--ranks-per-host"}, {"--rates", "--nvme", "--disk-out"});
  line.excludes("--compare", {"--out", "--picture"}, "which makes many plans");
  line.excludes("--cluster", {"--link", "--ranks-per-host", "--disk-out", "--disk-in", "--gpu"},
                "which describes devices, links and disks");
  return line;
}

CommandLine check_line(CheckOptions& options) {
  CommandLine line("check", kCheckDescription, "spillway check [--json] PLAN", kCheckExamples);
  line.add_argument("PLAN", options.plan,
                    "Plan that `spillway plan-job --out` stored, or a CSV file",
                    CommandLine::Need::kRequired);
  line.add_flag("--json", options.json, kKeysOfJson);
  return line;
}

CommandLine rebalance_line(RebalanceOptions& options) {
  constexpr std::uint32_t kMostStepsLeft = 1'000'000'000;
  CommandLine line("rebalance", kRebalanceDescription, "spillway rebalance [options] PLAN PROFILE",
                   kRebalanceExamples);
  line.add_argument("PLAN", options.plan, "Plan that a job runs now, as `plan-job --out` stored it",
                    CommandLine::Need::kRequired);
  line.add_argument("PROFILE", options.profile,
                    "Profile of one micro-batch as it runs now, recorded since the plan was made",
                    CommandLine::Need::kRequired);
  line.add("--steps-left", options.steps_left, counts(1, kMostStepsLeft),
           "Steps that the job will still run; layers move only if that pays within them [no "
           "limit: the fastest step]");
  line.add_text("--out", options.out, "FILE", "File for the new plan");
  line.add_flag("--json", options.json, kKeysOfJson);
  line.begin_group("Memory and links that the plan leaves open");
  line.add("--device-memory", options.device_memory, sizes(), "Memory of each device");
  line.add("--link", options.link, rates(), "Bandwidth between any two devices, in each direction");
  add_link_options(line, options.rates, "Bandwidth of each device to its host, for swaps");
  line.add("--host-memory", options.rates.host_memory, sizes(),
           "Host memory of each rank for swapped data");
  return line;
}

CommandLine costs_line(CostOptions& options) {
  CommandLine line("costs", kCostsDescription, "spillway costs --ranks COUNT [options] FILE",
                   kCostsExamples);
  line.add_argument("FILE", options.costs, "File of layer times", CommandLine::Need::kRequired);
  line.add("--ranks", options.ranks, counts_of_job(), "Devices to cut for");
  add_partitioner(line, options.partitioner);
  line.add_flag("--compare", options.compare, "Print one table of all partitioners");
  line.add_flag("--json", options.json, kKeysOfJson);
  line.require({"--ranks"}, kHowManyRanks);
  return line;
}

}  // namespace spillway::cli
