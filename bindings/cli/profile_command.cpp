#include "profile_command.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "exit_codes.h"
#include "run_command.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "watched_program.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

constexpr std::array<std::string_view, 3> kOwnOptions{"--out", "--steps", "--kind"};

// Of `--import` alone.
constexpr std::array<std::string_view, 2> kImportOptions{"--tensor-parallel", "--micro-batches"};

void refuse_import_options(const Words& options) {
  for (const std::string& word : options)
    for (const std::string_view option : kImportOptions)
      if (word == option || word.rfind(std::string(option) + "=", 0) == 0)
        throw ConfigError("{} is for --import, and a program is to run (leave it out)", option);
}

bool is_own_option(const std::string& word) {
  return std::find(kOwnOptions.begin(), kOwnOptions.end(), word) != kOwnOptions.end();
}

/// A person who waited for a profile, and a script, must learn that there is none.
int watch_for_profile(const ProgramStart& start) {
  const std::vector<std::string> before = written_states(start.profile_out);
  return run_watched(start.become, [&](long child, int code) {
    for (const std::string& state : written_states(start.profile_out))
      if (std::find(before.begin(), before.end(), state) == before.end()) return code;
    const std::string path = runtime::expand_stats_path(start.profile_out, child, "0");
    if (start.is_linked_with_torch)
      log_error("no profile in {}: {} wrote none (see the errors above; without any, it was ended "
                "by a signal, _exit or exec)",
                path, start.path);
    else
      log_error("no profile in {}: {} is not linked with LibTorch, and nothing that it loaded or "
                "started wrote one (see the errors above; without any, name the trainer itself)",
                path, start.path);
    return code == kDone ? kNoProfile : code;
  });
}

}  // namespace

ProfileArguments split_profile_arguments(const std::vector<std::string>& words) {
  ProfileArguments result;
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const auto is_import = [](const std::string& word) {
    return word == "--import" || word.rfind("--import=", 0) == 0;
  };
  if (std::find_if(words.begin(), dashes, is_import) != dashes) {
    result.imports = true;
    result.options.assign(words.begin(), words.end());
    return result;
  }
  // Stretch by stretch between our own options, whose values `run` would take for the program.
  Words rest = words;
  while (true) {
    RunArguments split = split_run_arguments(rest);
    const auto own = std::find_if(split.options.begin(), split.options.end(), is_own_option);
    if (own == split.options.end()) {
      refuse_import_options(split.options);
      result.options.insert(result.options.end(), split.options.begin(), split.options.end());
      result.program = std::move(split.program);
      return result;
    }
    // As for all options, a value that begins with two dashes stands behind "=".
    const auto at = std::find(rest.begin(), rest.end(), *own);
    if (at + 1 == rest.end() || (at + 1)->rfind("--", 0) == 0)
      throw ConfigError("{} needs a {}", *own, *own == "--out" ? "FILE" : "COUNT");
    const Words before = split_run_arguments({rest.begin(), at}).options;
    result.options.insert(result.options.end(), before.begin(), before.end());
    result.options.insert(result.options.end(), at, at + 2);
    rest.erase(rest.begin(), at + 2);
  }
}

int record_profile(runtime::NamedTexts given, const std::string& out, const std::string& steps,
                   const std::string& kind, const std::vector<std::string>& program) {
  if (out.empty())
    throw ConfigError("where to write the profile is missing (spillway profile --out "
                      "step.profile.json -- program arguments...)");
  if (program.empty())
    throw ConfigError("no program to profile (spillway profile --out {} -- program arguments...)",
                      shell_word(out));
  given.emplace_back("profile-out", out);
  if (!steps.empty())
    given.emplace_back("profile-steps", std::to_string(count_in("--steps", steps, 2)));
  if (!kind.empty())
    given.emplace_back(
        "profile-kind",
        std::to_string(count_in("--kind", kind, 1, runtime::ProfileRecording::kMostKinds)));
  return run_program(given, program, &watch_for_profile);
}

}  // namespace spillway::cli
