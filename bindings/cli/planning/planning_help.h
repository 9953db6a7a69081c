#pragma once

#include <string_view>

namespace spillway::cli {

inline constexpr std::string_view kPlanDescription =
    "Plans one training step under a memory budget from its profile, without the trainer and for "
    "any disk or link. The output has the step time, the bytes swapped out and in, the "
    "recomputation, the peak, and the distance to a proven lower bound. With --ranks the plan cuts "
    "the model for many devices and has their schedule. `spillway profile` records the profile.";

inline constexpr std::string_view kPlanExamples =
    R"(Bandwidths are those of --link-out and --link-in or of --rates, else those of the profile, else
guesses; the output says which.

Examples:
  spillway plan step.profile.json --budget 4GiB           will it fit, and how slow will it be?
  spillway plan step.profile.json --budget 50%            with half of what the step needs;
                                                          its "budget" line says what to give to
                                                          `run`, whose shares are of the machine
  spillway plan step.profile.json --frontier              a table over all budgets
  spillway plan step.profile.json --frontier step.svg     and a picture of it
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

With --ranks the profile must be of one micro-batch: of a trainer whose batch has that size. A rank
is a device. --ranks 8 --data-parallel 2 makes two pipelines of four ranks; each gets half of the
micro-batches, and both sum their gradients at the end of the step.

  spillway plan step.profile.json --ranks 4 --device-memory 8GiB --micro-batches 8
                                                          the fastest schedule that fits, where to
                                                          cut, and what each rank holds
  spillway plan step.profile.json --ranks 4 --device-memory 2GiB --micro-batches 8 \
                --link 12 --link-out 12 --link-in 12 --svg job.svg --out job.plan.json
                                                          with messages and swaps over links, a
                                                          picture of all ranks, and the plan
  spillway plan step.profile.json --ranks 4 --micro-batches 8 --schedule 1f1b --partitioner even
                                                          this schedule, these cuts
  spillway plan step.profile.json --ranks 4 --micro-batches 8 --compare
                                                          all schedules and all partitioners
  spillway plan --costs layers.txt --ranks 4 --partitioner torchgpipe
                                                          cuts for a file of layer times
  spillway plan step.profile.json --ranks 4 --micro-batches 8 --out actions.csv
                                                          the action list of each rank, in the form
                                                          of PyTorch's pipelining
  spillway plan --check job.plan.json                     deadlocks, messages, memory; also of a
                                                          CSV file of action lists
  spillway plan later.profile.json --rebalance job.plan.json --steps-left 5000 --out next.plan.json
                                                          layers to move to neighbouring ranks,
                                                          where that pays within 5000 steps of the
                                                          times of a newer profile; the new plan
                                                          is stored

Exit codes: 0 planned, 2 wrong options, files or rates, a budget that is too small, or a plan with a
fault.
)";

inline constexpr std::string_view kSimulateDescription =
    "Simulates a step under a stored plan, or under a plan made for --budget, and prints its "
    "predicted times. --trace writes every operator, stall and transfer of the predicted step to a "
    "file for Perfetto and Chrome; the lanes are compute, write-out, read-in, host copy, the disks "
    "behind host memory where there are some, and resident bytes. A plan for many ranks runs on a "
    "described machine, whose links all ranks share: the machine of --cluster, else the one that "
    "the plan was made for.";

inline constexpr std::string_view kSimulateExamples =
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
  spillway simulate job.json --cluster bindings/clusters/dgx_h200.json --ranks 4096
                                      a plan for many ranks (spillway plan --ranks) on a machine
  spillway simulate job.json --ranks 4096
                                      the same on the machine of its --topology

Exit codes: 0 simulated, 2 wrong options or files, or a plan for another step.
)";

}  // namespace spillway::cli
