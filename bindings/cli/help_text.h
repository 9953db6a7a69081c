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
  spillway run --nvme ram:8GiB,/scratch -- ./trainer
                                                to 8 GiB of memory first, and on to a disk
  spillway run --stats run.json -- ./trainer    and write what happened to a file
  spillway run --trace run.json -- ./trainer    and show the last steps as a Chrome trace
  spillway run -- mpiexec -n 2 ./trainer        each rank gets a budget of its own
  SPILLWAY_BUDGET=4GiB spillway run -- ./trainer

Exit codes: the program's own; 2 wrong options or a program that cannot be served,
126 the program cannot be executed, 127 it was not found.
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
