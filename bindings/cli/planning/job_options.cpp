#include "planning/job_options.h"

#include "command_line.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_request.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::cli {

namespace {

std::string schedule_help() {
  std::string text = "Who computes what when:";
  for (const planner::ScheduleGenerator& each : planner::schedule_generators())
    text += message(" {} ({});", each.name, each.summary);
  return text +
         message(
             " or {}, the fastest that fits and changes no results [{}]. A name alone is "
             "its usual variant, on one pipeline unless --data-parallel says more. What a schedule "
             "leaves open stands behind it: 1f1b-capped:slots=3, interleaved:chunks=4, "
             "gems-master:replicas=4; gems-mast:parked or :single-owner for its second "
             "copy of the weights; :stages or :idle-offload for how it gets into memory",
             planner::kAnySchedule, planner::kAnySchedule);
}

std::string partitioner_help() {
  std::string text = "How to cut the model:";
  for (const planner::Partitioner& each : planner::partitioners())
    text += message(" {} ({});", each.name, each.summary);
  text.back() = ' ';
  return text + message("[{}]", planner::partitioners().front().name);
}

}  // namespace

void add_job_options(CommandLine& line, JobOptions& options) {
  line.add_text("--ranks", options.ranks, "COUNT",
                "Plan for so many devices: cut the model into stages, and choose a schedule");
  line.add_text("--device-memory", options.device_memory, "SIZE",
                "With --ranks: memory of each device [as much as is needed]");
  line.add_text(
      "--micro-batches", options.micro_batches, "COUNT",
      "With --ranks: how many make a step, on all devices together; the profile is of one "
      "[as many as --batch; with --schedule auto the best that divide it]");
  line.add_text(
      "--batch", options.batch, "COUNT",
      "With --ranks: the work of a step, in micro-batches as profiled; fewer micro-batches are "
      "taken to be so many times as long and large [as many as --micro-batches, or as ranks]");
  line.add_text("--data-parallel", options.data_parallel, "COUNT",
                "With --ranks: pipelines that do the same with other micro-batches, and sum their "
                "gradients [1; with --schedule auto the best]");
  line.add_hidden_text("--groups", options.groups);
  line.add_text("--schedule", options.schedule, "NAME", schedule_help());
  line.add_text("--partitioner", options.partitioner, "NAME", partitioner_help());
  line.add_text(
      "--order", options.order, "NAME",
      "With --ranks: in which order the branches of a model go to the stages: recorded; any "
      "that the tensors of the profile allow; or auto, any where the profile knows all that "
      "operators wait for, as imported ones do [auto]");
  line.add_text(
      "--link", options.link, "GB/s",
      "With --ranks: rate between any two devices, each way [messages take no time]; the one "
      "to each host, for swaps, is --link-out and --link-in [nothing is swapped], and "
      "--host-memory is then of each rank");
  line.add_text(
      "--topology", options.topology, "FILE|NAME",
      "With --ranks: plan for this description of a machine, or for the one of that name that "
      "came with the command: its memory, links and disks. Other options leave less of them "
      "to the job; --host-memory is then of each node");
  line.add_text("--ranks-per-host", options.ranks_per_host, "COUNT",
                "With --ranks, and disks (--rates, --nvme): neighbouring ranks that share them");
  line.add_flag(
      "--compare", options.compare,
      "With --ranks: all schedules on one pipeline, or on --data-parallel of them, and all "
      "partitioners with the best of them, in one table; with --topology each as it runs "
      "on the machine");
  line.add_text("--svg", options.picture, "FILE",
                "With --ranks: draw what each device does when, and what it holds");
  line.add_text(
      "--costs", options.costs, "FILE",
      "With --ranks: cut a list of numbers, seconds of one layer each, instead of a profile");
  line.add_text(
      "--rebalance", options.rebalance, "FILE",
      "Take up the plan for many ranks that a job runs by (--out stored it) with a PROFILE that "
      "was recorded since: which layers to move to neighbouring ranks at the end of a step, in "
      "which rounds, and after how many steps that pays. Ranks, schedule, memory and links are the "
      "plan's; "
      "--out stores the plan to go on with");
  line.add_text(
      "--steps-left", options.steps_left, "COUNT",
      "With --rebalance: move what pays within so many steps, nothing if nothing does [move to "
      "the quickest step, whenever that pays]");
  line.add_text(
      "--check", options.check, "FILE",
      "Look for the first fault of a stored plan for many ranks, or of lists of actions as "
      "PyTorch's pipelining writes them (CSV)");
}

}  // namespace spillway::cli
