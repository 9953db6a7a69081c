#include "profile_options.h"

#include <string_view>

#include "spillway/runtime/recording/profile_recording.h"

namespace spillway::cli {
namespace {

constexpr std::string_view kProfileDescription =
    "Runs a program as `spillway run` does, with the same options, and writes a profile of one "
    "step at its end: operators with names, shapes and times, tensors with sizes and lifetimes, "
    "and the bandwidths of the disk. The step is of the most frequent kind, or of the kind that "
    "--kind names; times are medians over its repetitions. Stalls do not count as operator time, "
    "so a model that does not fit can be profiled with --budget. --import converts a published "
    "trace to a profile instead.";

constexpr std::string_view kProfileExamples =
    R"(Traces that --import reads: dtr, operator logs of the prototype of Dynamic Tensor
Rematerialization; pipedream, layer graphs of PipeDream's profiler; piper, layer costs of Piper.

Examples:
  spillway profile --out step.profile.json -- ./trainer --epochs 1
                                                the whole run, and a profile at its end
  spillway profile --out step.profile.json --steps 8 -- ./trainer
                                                end the trainer when a step has come 8 times
  spillway profile --out step.profile.json --budget 4GiB -- ./trainer
                                                a trainer that needs more memory than there is
  spillway profile --out val.profile.json --kind 2 -- ./trainer
                                                the second most frequent kind of step, such as
                                                one with a validation after it
  spillway profile --import dtr unet-b6.log --out unet.profile.json
  spillway profile --import piper bert.json --tensor-parallel 4 --out bert.profile.json

The trainer must do at least three equal steps, as the end of a step shows when the next one
begins; five make better medians. --steps ends the trainer between two operators with exit code 0,
so it does not save what it saves at its end. Steps whose tensors are all smaller than
--min-storage are not recorded; with --steps a warning says so.

Exit codes: the program's own, or 0 when --steps ended it; 1 where that is 0 but no profile was
made; 2 for wrong options, an unreadable trace or a program that Spillway cannot serve; 126 where
the program cannot be executed; 127 where it is not found.
)";

}  // namespace

CommandLine profile_command_line(ProfileOptions& options) {
  CommandLine line("profile", kProfileDescription,
                   "spillway profile --out FILE [options] -- program arguments...\n"
                   "       spillway profile --import FORMAT TRACE --out FILE [options]",
                   kProfileExamples);
  line.add_text(
      "--out", options.out, "FILE",
      "File for the profile, as JSON; with %d, which becomes cuda:0 and so on, one for each GPU");
  line.add("--steps", options.steps, counts(2),
           "Repetitions of one kind of step after which the program is ended [it runs to its end]");
  line.add("--kind", options.kind, counts(1, runtime::ProfileRecording::kMostKinds),
           "Kind of step to profile, by frequency: 1 is the most frequent one. Steps of other "
           "shapes, and steps with a validation after them, are kinds of their own [1]");
  line.add("--import", options.format, one_of(kTraceFormats),
           "Format of a published trace to convert to a profile");
  line.add_argument("TRACE", options.trace, "Published trace to convert",
                    CommandLine::Need::kOptional);
  line.add("--tensor-parallel", options.tensor_parallel, counts(),
           "For piper: parts that each layer is split into [1]");
  line.add("--micro-batches", options.micro_batches, counts(),
           "For piper: micro-batches that a layer processes at once [1]");
  line.add_settings({}, {"profile-out", "profile-steps", "profile-kind"});
  std::vector<std::string> of_runs{"--steps", "--kind"};
  for (const runtime::SettingInfo& setting : runtime::setting_catalogue())
    if (!setting.key.starts_with("profile-")) of_runs.push_back("--" + std::string(setting.key));
  line.excludes("--import", of_runs, "which runs no program");
  line.needs({"--tensor-parallel", "--micro-batches"}, {"--import"});
  return line;
}

}  // namespace spillway::cli
