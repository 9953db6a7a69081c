#include "planning/import_command.h"

#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "exit_codes.h"
#include "output_files.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/profile/import/trace_import.h"
#include "spillway/runtime/reporting/profile_summary.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {
namespace {

/// An import runs nothing, so nothing of a run has a meaning there.
void refuse_options_of_runs(const ProfileOptions& options, const runtime::NamedTexts& settings) {
  const auto refuse = [](const std::string& option, const std::string& value) {
    throw ConfigError("--{} {} is for a program that runs, and --import runs none (leave it out)",
                      option, value);
  };
  for (const auto& [key, value] : settings) refuse(key, value);
  if (!options.steps.empty()) refuse("steps", options.steps);
  if (!options.kind.empty()) refuse("kind", options.kind);
}

TraceFormat format_named(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Named<TraceFormat>& each : kTraceFormats) {
    if (each.name == name) return each.value;
    names.push_back(each.name);
  }
  throw ConfigError("--import: unknown format '{}'{}", name, hint_for(name, names));
}

profile::StepProfile read_as(TraceFormat format, const std::string& file,
                             const profile::PiperOptions& degrees) {
  const std::string text = topology::text_of_file(file);
  switch (format) {
    case TraceFormat::kDtr: return profile::import_dtr(text, file);
    case TraceFormat::kPipedream: return profile::import_pipedream(text, file);
    case TraceFormat::kPiper: break;
  }
  return profile::import_piper(text, file, degrees);
}

/// What an importer says names file and place; this adds what to do.
profile::StepProfile imported(TraceFormat format, const std::string& file,
                              const profile::PiperOptions& degrees) {
  try {
    return read_as(format, file, degrees);
  } catch (const ConfigError& error) {
    throw ConfigError("{} (hold it against src/profile/import/README.md, or name another format: "
                      "--import {})",
                      error.what(), alternatives(kTraceFormats));
  }
}

}  // namespace

int import_profile(const ProfileOptions& options, const runtime::NamedTexts& settings) {
  refuse_options_of_runs(options, settings);
  if (options.trace.empty())
    throw ConfigError("the trace to import is missing (spillway profile --import {} TRACE --out "
                      "FILE)",
                      options.format);
  const TraceFormat format = format_named(options.format);
  if (options.out.empty())
    throw ConfigError("where to write the profile is missing (--out FILE.profile.json)");
  profile::PiperOptions degrees;
  degrees.tensor_parallel = count_in("--tensor-parallel", options.tensor_parallel);
  degrees.micro_batches = count_in("--micro-batches", options.micro_batches);
  if (format != TraceFormat::kPiper && (degrees.tensor_parallel > 1 || degrees.micro_batches > 1))
    throw ConfigError("--tensor-parallel and --micro-batches are for piper, whose layers have "
                      "several costs; those of {} have one",
                      options.format);
  check_outputs({{"TRACE", options.trace}}, {{"--out", options.out}});
  const profile::StepProfile profile = imported(format, options.trace, degrees);
  topology::write_file_at_once(options.out, profile::to_text(profile));
  std::cout << options.out << ": " << runtime::describe(profile) << "; pages of "
            << profile.page_size << '\n';
  return kDone;
}

}  // namespace spillway::cli
