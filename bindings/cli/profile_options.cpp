#include "profile_options.h"

#include <string_view>

namespace spillway::cli {
namespace {

constexpr std::string_view kProfileDescription =
    "Runs a program as `spillway run` does, with the same options, and writes at its end what a "
    "step of it does: operators with names, shapes and times, tensors with sizes and lives, the "
    "rates of the disk. It is the kind of step that came most often, or the one that --kind names; "
    "times are medians of its repetitions. A budget may be given: waits are left out of the times, "
    "so a model that does not fit can be profiled as well. Or turns a published trace into such a "
    "file.";

constexpr std::string_view kProfileExamples =
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

}  // namespace

CommandLine profile_command_line(ProfileOptions& options) {
  CommandLine line("profile", kProfileDescription,
                   "spillway profile --out FILE [options] -- program arguments...\n"
                   "       spillway profile --import FORMAT TRACE --out FILE [options]",
                   kProfileExamples);
  line.add_text("--out", options.out, "FILE", "Where the profile is written, as JSON");
  line.add_text("--steps", options.steps, "COUNT",
                "End the program once a step has come so often [it runs to its end]");
  line.add_text("--kind", options.kind, "COUNT",
                "Of which kind of step, where a trainer has several (other shapes, or a validation "
                "behind some steps, which belongs to them): 1 is the one that comes most often, 2 "
                "the next [1]");
  line.add_text("--import", options.format, alternatives(kTraceFormats),
                "Make a profile of a published trace instead");
  line.add_argument("TRACE", options.trace, "The trace to import", CommandLine::Need::kOptional);
  line.add_text("--tensor-parallel", options.tensor_parallel, "COUNT",
                "For piper: into how many parts each layer is split [1]");
  line.add_text("--micro-batches", options.micro_batches, "COUNT",
                "For piper: how many of them a layer works on at once [1]");
  line.add_settings({}, {"profile-out", "profile-steps", "profile-kind"});
  return line;
}

}  // namespace spillway::cli
