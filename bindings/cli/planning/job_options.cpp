#include "planning/job_options.h"

#include "command_line.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_request.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::cli {

namespace {

std::string schedule_help() {
  std::string text = "Schedule, the order of the work of each rank:";
  for (const planner::ScheduleGenerator& each : planner::schedule_generators())
    text += message(" {} ({});", each.name, each.summary);
  return text +
         message(" or {}: the fastest one that fits and leaves the results of training unchanged "
                 "[{}]. Parameters follow a colon: 1f1b-capped:slots=3, interleaved:chunks=4, "
                 "gems-master:replicas=4; gems-mast:parked or gems-mast:single-owner, for the "
                 "second copy of the weights; any schedule with :stages, :recompute or "
                 ":idle-offload, for the way to save memory. Without parameters the defaults "
                 "apply, and one pipeline unless --data-parallel names more",
                 planner::kAnySchedule, planner::kAnySchedule);
}

std::string partitioner_help() {
  std::string text = "Partitioner, which cuts the model into stages:";
  for (const planner::Partitioner& each : planner::partitioners())
    text += message(" {} ({});", each.name, each.summary);
  text.back() = ' ';
  return text + message("[{}]", planner::partitioners().front().name);
}

}  // namespace

void add_job_options(CommandLine& line, JobOptions& options) {
  line.add_text("--ranks", options.ranks, "COUNT",
                "Devices to plan for: the plan cuts the model into stages and has a schedule");
  line.add_text("--device-memory", options.device_memory, "SIZE",
                "With --ranks: memory of each device [no limit]");
  line.add_text(
      "--micro-batches", options.micro_batches, "COUNT",
      "With --ranks: micro-batches of a step, summed over data-parallel replicas; the profile is "
      "of exactly one [the value of --batch; with --schedule auto the best divisor of it]");
  line.add_text(
      "--batch", options.batch, "COUNT",
      "With --ranks: work of a step, as a number of micro-batches of the profile's size; with "
      "fewer --micro-batches, each is larger and takes longer in proportion [the value of "
      "--micro-batches, else of --ranks]");
  line.add_text("--data-parallel", options.data_parallel, "COUNT",
                "With --ranks: data-parallel replicas, that is pipelines which share the "
                "micro-batches of a step and sum their gradients [1; with --schedule auto the "
                "best number]");
  line.add_hidden_text("--groups", options.groups);
  line.add_text("--schedule", options.schedule, "NAME", schedule_help());
  line.add_text("--partitioner", options.partitioner, "NAME", partitioner_help());
  line.add_text(
      "--order", options.order, "NAME",
      "With --ranks: order in which the branches of a model are assigned to stages: recorded; "
      "any, the best one that the tensors of the profile allow; or auto, which is any where the "
      "profile has all dependences, as imported profiles do, else recorded [auto]");
  line.add_text(
      "--link", options.link, "GB/s",
      "With --ranks: bandwidth between any two devices, in each direction [messages take no "
      "time]. --link-out and --link-in are then the bandwidth between each device and its host, "
      "for swaps [nothing is swapped], and --host-memory is per rank");
  line.add_text(
      "--topology", options.topology, "FILE|NAME",
      "With --ranks: machine to plan for, as a description or the name of a bundled one; it sets "
      "device memory, links and disks. Other options may only lower these limits; --host-memory "
      "is then per node");
  line.add_text("--ranks-per-host", options.ranks_per_host, "COUNT",
                "With --ranks and disks (--rates, --nvme): neighbouring ranks that share the "
                "disks of a host");
  line.add_flag("--compare", options.compare,
                "With --ranks: print one table of all schedules, on one pipeline or as many as "
                "--data-parallel says, and of all partitioners with the best schedules; with "
                "--topology each row as it runs on the machine");
  line.add_text("--svg", options.picture, "FILE",
                "With --ranks: SVG picture to write, of the work and the memory of each device "
                "over a step");
  line.add_text("--costs", options.costs, "FILE",
                "With --ranks: text file of layer times in seconds, one number per layer, to cut "
                "instead of a profile");
  line.add_text(
      "--rebalance", options.rebalance, "FILE",
      "Plan that a job runs now (stored by --out). From a newer PROFILE of the same model, the "
      "output says which layers should move to neighbouring ranks at the end of a step, in which "
      "rounds, and after how many steps the move pays. Ranks, schedule, memory and links stay as "
      "in the plan; --out stores the new plan");
  line.add_text("--steps-left", options.steps_left, "COUNT",
                "With --rebalance: steps that the job will still run; layers move only if that "
                "pays within them [no limit: the fastest step]");
  line.add_text("--check", options.check, "FILE",
                "Stored plan for many ranks, or CSV action lists as PyTorch's pipelining writes "
                "them, to check; the output names the first fault");
}

}  // namespace spillway::cli
