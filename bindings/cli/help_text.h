#pragma once

#include <array>
#include <string_view>

namespace spillway::cli {

inline constexpr std::string_view kPurpose =
    "Spillway trains LibTorch models that need more memory than the machine has.";

struct CommandSummary {
  std::string_view name;
  std::string_view summary;
};

inline constexpr std::array<CommandSummary, 10> kCommands{{
    {"run", "run a trainer under a memory budget"},
    {"profile", "record a training step, so that plans need no trainer"},
    {"plan", "predict from a profile how fast a step runs under a budget"},
    {"plan-job", "plan a step of many devices: cuts, schedule and memory of each"},
    {"check", "find the first fault of a plan for many devices"},
    {"rebalance", "say which layers a running job should move"},
    {"costs", "cut a list of layer times for several devices"},
    {"simulate", "show the step that a plan predicts, operator by operator"},
    {"doctor", "check this machine and say how to fix each problem"},
    {"bench-io", "measure a disk, or the link of a GPU, for later runs and plans"},
}};

inline constexpr std::string_view kFirstSteps =
    R"(Start here:
  spillway doctor                                     what works on this machine
  spillway run --budget 4GiB -- ./trainer --epochs 3  the trainer as it is, within 4 GiB
  spillway run --budget 50% -- python3 train.py       half of the usable memory
)";

inline constexpr std::string_view kRunDescription =
    "Runs an unmodified LibTorch trainer, with unchanged results, and keeps the bytes of its "
    "tensors in memory within a budget. Tensors that do not fit spill to disk. The exit code is "
    "that of the program.";

inline constexpr std::string_view kRunExamples =
    R"(Every option can also be set as SPILLWAY_<NAME> (SPILLWAY_QUEUE_DEPTH=32) or as a line of the
config file (queue-depth = 32). Options win over variables, variables over the file. Relative
paths start in the current folder in all three places.

Examples:
  spillway run -- ./trainer                     as much memory as this process may use
  spillway run --budget 4GiB -- ./trainer -e 3  at most 4 GiB of tensors
  spillway run --nvme /scratch:200GiB,/fast -- ./trainer
                                                spill to two disks, at most 200 GiB on the first
  spillway run --nvme ram:8GiB,/scratch -- ./trainer
                                                spill to 8 GiB of memory first, then to a disk
  spillway run --stats run.json -- ./trainer    write statistics to a file
  spillway run --trace run.json -- ./trainer    write the last steps as a Chrome trace
  spillway run -- mpiexec -n 2 ./trainer        each rank gets a budget of its own
  SPILLWAY_BUDGET=4GiB spillway run -- ./trainer

Exit codes: the program's own; 2 for wrong options or a program that Spillway cannot serve;
126 where the program cannot be executed; 127 where it is not found.
)";

inline constexpr std::string_view kDoctorDescription =
    "Checks whether this machine has what Spillway needs. Each line names one finding; a warning "
    "or a problem is followed by the way to fix it.";

inline constexpr std::string_view kDoctorExamples =
    R"(Examples:
  spillway doctor                    all checks, with a quick measurement of the disk
  spillway doctor --nvme /scratch    another disk
  spillway doctor -- ./trainer       the LibTorch that this program loads
  spillway doctor --json             for scripts
  mpiexec -n 4 spillway doctor       one report of all ranks, with the links between them

Exit codes: 0 no problem, 1 at least one problem, 2 wrong options.
)";

inline constexpr std::string_view kBenchDescription =
    "Measures the write and read bandwidth of a directory, each alone and both at the same time, "
    "by block size and by transfers in flight, with the code that spills tensors. The measured "
    "file has no name and is deleted afterwards. The result replaces an older one of the same "
    "directory in the file of --rates; later runs plan with it. With --device it measures a GPU "
    "instead: copies to and from pinned host memory, alone, both ways and beside work of the GPU, "
    "mapping of its memory, and pinning; in seconds, on an emulated GPU in a minute or two.";

inline constexpr std::string_view kBenchExamples =
    R"(Examples:
  spillway bench-io /scratch
  spillway bench-io --file-size 8GiB --blocks 2MiB --depths 8,16,32 /scratch
  spillway bench-io --rates disks.json /scratch    store the result in another file
  spillway bench-io --device cuda:0                the link between a GPU and its host

Exit codes: 0 measured, 2 wrong options, no usable directory or GPU, or rates not written.
)";

}  // namespace spillway::cli
