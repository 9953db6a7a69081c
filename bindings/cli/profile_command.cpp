#include "profile_command.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <string_view>

#include "exit_codes.h"
#include "output_files.h"
#include "run_command.h"
#include "setting_words.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/named_values.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/import/trace_import.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "spillway/runtime/reporting/profile_summary.h"
#include "spillway/topology/atomic_file.h"
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

struct TraceImport {
  std::string_view name;
  profile::StepProfile (*read)(const std::string& text, const std::string& file,
                               const profile::PiperOptions& options);
  bool has_degrees;  ///< Takes --tensor-parallel and --micro-batches.
};

constexpr std::array<TraceImport, 3> kImports{
    {{"dtr",
      [](const std::string& text, const std::string& file, const profile::PiperOptions&) {
        return profile::import_dtr(text, file);
      },
      false},
     {"pipedream",
      [](const std::string& text, const std::string& file, const profile::PiperOptions&) {
        return profile::import_pipedream(text, file);
      },
      false},
     {"piper",
      [](const std::string& text, const std::string& file, const profile::PiperOptions& options) {
        return profile::import_piper(text, file, options);
      },
      true}}};

const TraceImport& import_named(const std::string& name) {
  std::vector<std::string_view> names;
  for (const TraceImport& each : kImports) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  throw ConfigError("--import: unknown format '{}'{}", name, hint_for(name, names));
}

/// What an importer says names file and place; this adds what to do.
profile::StepProfile imported(const TraceImport& import, const std::string& file,
                              const profile::PiperOptions& degrees) {
  const std::string text = topology::text_of_file(file);
  try {
    return import.read(text, file, degrees);
  } catch (const ConfigError& error) {
    throw ConfigError("{} (hold it against src/profile/import/README.md, or name another format: "
                      "--import {})",
                      error.what(), import_formats());
  }
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

std::string import_formats() { return alternatives(kImports); }

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

int import_profile(const ImportOptions& options) {
  const TraceImport& import = import_named(options.format);
  if (options.out.empty())
    throw ConfigError("where to write the profile is missing (--out FILE.profile.json)");
  profile::PiperOptions degrees;
  degrees.tensor_parallel = count_in("--tensor-parallel", options.tensor_parallel);
  degrees.micro_batches = count_in("--micro-batches", options.micro_batches);
  if (!import.has_degrees && (degrees.tensor_parallel > 1 || degrees.micro_batches > 1))
    throw ConfigError("--tensor-parallel and --micro-batches are for piper, whose layers have "
                      "several costs; those of {} have one",
                      import.name);
  check_outputs({{"TRACE", options.file}}, {{"--out", options.out}});
  const profile::StepProfile profile = imported(import, options.file, degrees);
  topology::write_file_at_once(options.out, profile::to_text(profile));
  std::cout << options.out << ": " << runtime::describe(profile) << "; pages of "
            << profile.page_size << '\n';
  return kDone;
}

}  // namespace spillway::cli
