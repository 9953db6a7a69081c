#pragma once

#include <string_view>

namespace spillway::cli {

inline constexpr std::string_view kPlanDescription =
    "Tells from the profile of one training step how long the step takes under a memory budget, "
    "without the trainer and for any disk or link: what is swapped out and in, what is computed "
    "again, the peak, and how far from the best the plan can be. With --ranks: how to cut the "
    "model for many devices, and which schedule to run. The profile comes from `spillway profile`.";

inline constexpr std::string_view kPlanExamples =
    R"(Rates of transfers are those of --link-out and --link-in or of --rates, else of the profile, else
guesses; the output says which.

Examples:
  spillway plan step.profile.json --budget 4GiB           will it fit, and how slow will it be?
  spillway plan step.profile.json --budget 50%            with half of what the step needs;
                                                          its "budget" line says what to give to
                                                          `run`, whose shares are of the machine
  spillway plan step.profile.json --frontier              a table over all budgets
  spillway plan step.profile.json --frontier step.svg     and a picture of it
  spillway plan step.profile.json --budget 4GiB --rates disks.json --nvme /scratch
                                                          on another machine's disk
  spillway plan step.profile.json --budget 16GiB --link-out 12 --link-in 12
                                                          over a link of 12 GB/s either way
  spillway plan step.profile.json --budget 16GiB --link-out 25 --link-in 25 \
                --host-memory 64GiB --disk-out 3 --disk-in 6
                                                          and what 64 GiB behind it cannot hold
                                                          goes on to disks
  spillway plan step.profile.json --budget 4GiB --strategy all
                                                          against published strategies
  spillway plan step.profile.json --budget 4GiB --out step.plan.json
                                                          and keep the plan

On many devices the profile is of one micro-batch: the step of a trainer that works on as much at
once. A rank is a device. --ranks 8 --data-parallel 2 are two pipelines of four ranks, each of which takes
half of the micro-batches; then they sum their gradients.

  spillway plan step.profile.json --ranks 4 --device-memory 8GiB --micro-batches 8
                                                          the fastest schedule that fits, where to
                                                          cut, and what each rank holds
  spillway plan step.profile.json --ranks 4 --device-memory 2GiB --micro-batches 8 \
                --link 12 --link-out 12 --link-in 12 --svg job.svg --out job.plan.json
                                                          with messages and swaps over links, a
                                                          picture of all ranks, and the plan
  spillway plan step.profile.json --ranks 4 --micro-batches 8 --schedule 1f1b --partitioner even
                                                          one schedule, cut like this
  spillway plan step.profile.json --ranks 4 --micro-batches 8 --compare
                                                          all schedules and all partitioners
  spillway plan --costs layers.txt --ranks 4 --partitioner torchgpipe
                                                          cut a plain list of layer times
  spillway plan step.profile.json --ranks 4 --micro-batches 8 --out lists.csv
                                                          the actions of each rank, as PyTorch's
                                                          pipelining reads and writes them
  spillway plan --check job.plan.json                     deadlocks, messages, memory; reads such
                                                          lists, too
  spillway plan later.profile.json --rebalance job.plan.json --steps-left 5000 --out next.plan.json
                                                          the step was recorded again and takes
                                                          other times: layers to move to
                                                          neighbouring ranks, if that pays in 5000
                                                          steps, and the plan to go on with

Exit codes: 0 planned, 2 wrong options, files or rates, a budget that is too small, or a plan with a
fault.
)";

inline constexpr std::string_view kSimulateDescription =
    "Runs the event model over a stored plan, or over one made for --budget, and tells what it "
    "predicts. With --trace, every operator, wait and transfer of the predicted step goes to a "
    "file that Perfetto and Chrome show; the lanes are compute, write-out, read-in, host copy, "
    "those of the disks behind host memory where there are some, and resident bytes. A plan for "
    "many ranks runs on a described machine, whose links all ranks share: on that of --cluster, "
    "else on the one that it was made for.";

inline constexpr std::string_view kSimulateExamples =
    R"(Examples:
  spillway simulate step.profile.json --plan step.plan.json --trace step.json
                                      open step.json in https://ui.perfetto.dev
  spillway simulate step.profile.json --budget 4GiB --trace step.json
                                      plan, and look at once
  spillway simulate step.profile.json --plan step.plan.json --link-out 6 --link-in 6
                                      the same plan on a link of half the rate
  spillway run --plan step.plan.json --trace run.json -- ./trainer
  spillway simulate step.profile.json --plan step.plan.json --beside run.json --trace both.json
                                      prediction and real step, one above the other, and where
                                      they differ most
  spillway simulate job.json --cluster bindings/clusters/dgx_h200.json --ranks 4096
                                      a plan for many ranks (spillway plan --ranks) on a machine
  spillway simulate job.json --ranks 4096
                                      one made with --topology, on its own machine

Exit codes: 0 simulated, 2 wrong options or files, or a plan for another step.
)";

}  // namespace spillway::cli
