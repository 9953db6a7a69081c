#pragma once

#include <string_view>

namespace spillway::cli {

inline constexpr std::string_view kOverview =
    R"(Spillway trains LibTorch models that need more memory than there is.

Usage: spillway COMMAND ...

Commands:
  run       run a trainer under a memory budget
  profile   write down what a step of a trainer does, for planning without it
  plan      tell from a profile how fast a step runs under a budget, before it runs
  simulate  look into the step that a plan predicts
  doctor    check this machine, line by line, with what to do about each problem
  bench-io  measure a disk, so that runs know its rates

Start here:
  spillway doctor                                     is everything in place?
  spillway run --budget 4GiB -- ./trainer --epochs 3  the trainer as it is, within 4 GiB
  spillway run --budget 50% -- python3 train.py       half of the memory that can be used

spillway COMMAND --help explains a command; spillway --version tells the versions.
)";

inline constexpr std::string_view kRunDescription =
    "Runs a program that trains with LibTorch, unchanged and with unchanged results, while its "
    "tensors never take more memory than the budget. What does not fit spills to disk. The exit "
    "code is the program's own.";

inline constexpr std::string_view kRunExamples =
    R"(Every option can also be set as SPILLWAY_<NAME> (SPILLWAY_QUEUE_DEPTH=32) or as a line of the
config file (queue-depth = 32). Options win over variables, variables over the file. Relative
paths, in all three places, start in the folder in which the command is typed.

Examples:
  spillway run -- ./trainer                     as much memory as this process may use
  spillway run --budget 4GiB -- ./trainer -e 3  at most 4 GiB of tensors
  spillway run --nvme /scratch:200GiB,/fast -- ./trainer
                                                spill to two disks, at most 200 GiB on the first
  spillway run --stats run.json -- ./trainer    and write what happened to a file
  spillway run --trace run.json -- ./trainer    and show the last steps as a Chrome trace
  spillway run -- mpiexec -n 2 ./trainer        each rank gets a budget of its own
  SPILLWAY_BUDGET=4GiB spillway run -- ./trainer

Exit codes: the program's own; 2 wrong options or a program that cannot be served,
126 the program cannot be executed, 127 it was not found.
)";

inline constexpr std::string_view kProfileDescription =
    "Runs a program as `spillway run` does, with the same options, and writes at its end what a "
    "step of it does: operators with names, shapes and times, tensors with sizes and lives, the "
    "rates of the disk. It is the kind of step that came most often, or the one that --kind names; "
    "times are medians of its repetitions. A budget may be given: waits are left out of the times, "
    "so a model that does not fit can be profiled as well. Or turns a published trace into such a "
    "file.";

inline constexpr std::string_view kProfileExamples =
    R"(Traces that --import reads: dtr, operator logs of the prototype of Dynamic Tensor
Rematerialization; pipedream, layer graphs of PipeDream's profiler; piper, layer costs of Piper.

Examples:
  spillway profile --out step.profile.json -- ./trainer --epochs 1
                                                the whole run, and a profile at its end
  spillway profile --out step.profile.json --steps 8 -- ./trainer
                                                end the trainer when a step has come 8 times
  spillway profile --out step.profile.json --budget 4GiB -- ./trainer
                                                a trainer that needs more than there is
  spillway profile --out val.profile.json --kind 2 -- ./trainer
                                                a step with a validation behind it, if those are
                                                the second most frequent ones
  spillway profile --import dtr unet-b6.log --out unet.profile.json
  spillway profile --import piper bert.json --tensor-parallel 4 --out bert.profile.json

A step has to come at least twice, and better five times, for medians. With --steps the trainer is
ended between two operators, with exit code 0: what it would have saved at its end is not saved.

Exit codes: the program's own, or 0 when --steps ended it; 1 when that would be 0 and there is no
profile; 2 wrong options, a trace that cannot be read or a program that cannot be served, 126 the
program cannot be executed, 127 it was not found.
)";

inline constexpr std::string_view kDoctorDescription =
    "Checks this machine for what Spillway needs. Each line says what was found; under a line with "
    "a warning or a problem stands what to do.";

inline constexpr std::string_view kDoctorExamples =
    R"(Examples:
  spillway doctor                    everything, with a quick measurement of the disk
  spillway doctor --nvme /scratch    another disk
  spillway doctor -- ./trainer       the LibTorch that this program loads
  spillway doctor --json             for scripts

Exit codes: 0 nothing stands in the way, 1 at least one problem, 2 wrong options.
)";

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
once. A rank is a device. --ranks 8 --groups 2 are two pipelines of four ranks, each of which takes
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

inline constexpr std::string_view kBenchDescription =
    "Measures how fast a directory can be written and read, alone and both at once, by block size "
    "and by transfers in flight, through the same code that spills tensors. The file of the "
    "measurement has no name and is gone afterwards. The result is kept in the file that --rates "
    "names, in place of an older one of the same directory, and later runs plan with it.";

inline constexpr std::string_view kBenchExamples =
    R"(Examples:
  spillway bench-io /scratch
  spillway bench-io --file-size 8GiB --blocks 2MiB --depths 8,16,32 /scratch
  spillway bench-io --rates disks.json /scratch    keep the result in a file of your own

Exit codes: 0 measured, 2 wrong options or a directory that cannot be used.
)";

}  // namespace spillway::cli
