#include "profile_command.h"

#include <string.h>

#include <algorithm>

#include "exit_codes.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"
#include "watched_program.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

/// A person who waited for a profile, and a script, must learn that there is none.
int watch_for_profile(const ProgramStart& start) {
  const std::vector<std::string> before = written_states(start.profile_out);
  return run_watched(start.become, [&](long child, int code) {
    for (const std::string& state : written_states(start.profile_out))
      if (std::find(before.begin(), before.end(), state) == before.end()) return code;
    const std::string path = runtime::expand_stats_path(start.profile_out, child, "0");
    if (code > kSignalBase)
      log_error(
          "no profile in {}: {} was ended by signal {} ({}) before it had written one (let it "
          "train longer, or name fewer --steps)",
          path, start.path, code - kSignalBase, ::strsignal(code - kSignalBase));
    else if (start.is_linked_with_torch)
      log_error("no profile in {}: {} wrote none (see the errors above; without any, it was ended "
                "by _exit or exec)",
                path, start.path);
    else
      log_error("no profile in {}: {} is not linked with LibTorch, and nothing that it loaded or "
                "started wrote one (see the errors above; without any, name the trainer itself)",
                path, start.path);
    return code == kDone ? kNoProfile : code;
  });
}

}  // namespace

bool imports_trace(const Words& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  return std::any_of(words.begin(), dashes, [](const std::string& word) {
    return word == "--import" || word.starts_with("--import=");
  });
}

RunArguments split_profile_arguments(const Words& words) {
  return split_run_arguments(words, {{"--out", "FILE"},
                                     {"--steps", "COUNT"},
                                     {"--kind", "COUNT"},
                                     {"--tensor-parallel", "COUNT"},
                                     {"--micro-batches", "COUNT"}});
}

int record_profile(runtime::NamedTexts given, const ProfileOptions& options, const Words& program) {
  if (options.out.empty())
    throw ConfigError("where to write the profile is missing (spillway profile --out "
                      "step.profile.json -- program arguments...)");
  if (program.empty())
    throw ConfigError("no program to profile (spillway profile --out {} -- program arguments...)",
                      shell_word(options.out));
  given.emplace_back("profile-out", options.out);
  if (options.steps) given.emplace_back("profile-steps", std::to_string(*options.steps));
  if (options.kind) given.emplace_back("profile-kind", std::to_string(*options.kind));
  return run_program(given, program, &watch_for_profile);
}

}  // namespace spillway::cli
