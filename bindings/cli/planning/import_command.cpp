#include "planning/import_command.h"

#include <iostream>
#include <string>
#include <string_view>

#include "exit_codes.h"
#include "output_files.h"
#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/profile/import/trace_import.h"
#include "spillway/runtime/reporting/profile_summary.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {
namespace {

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
    throw ConfigError("{} (spillway profile --help says what each format is; name another one with "
                      "--import {})",
                      error.what(), alternatives(kTraceFormats));
  }
}

}  // namespace

int import_profile(const ProfileOptions& options) {
  const TraceFormat format = *options.format;
  const std::string_view name = name_in(kTraceFormats, format);
  if (options.trace.empty())
    throw ConfigError("the trace to import is missing (spillway profile --import {} TRACE --out "
                      "FILE)",
                      name);
  if (options.out.empty())
    throw ConfigError("where to write the profile is missing (--out FILE.profile.json)");
  profile::PiperOptions degrees;
  degrees.tensor_parallel = options.tensor_parallel;
  degrees.micro_batches = options.micro_batches;
  if (format != TraceFormat::kPiper && (degrees.tensor_parallel > 1 || degrees.micro_batches > 1))
    throw ConfigError("--tensor-parallel and --micro-batches are for piper, whose layers have "
                      "several costs; those of {} have one",
                      name);
  check_outputs({{"TRACE", options.trace}}, {{"--out", options.out}});
  const profile::StepProfile profile = imported(format, options.trace, degrees);
  topology::write_file_at_once(options.out, profile::to_text(profile));
  std::cout << options.out << ": " << runtime::describe(profile) << "; pages of "
            << profile.page_size << '\n';
  return kDone;
}

}  // namespace spillway::cli
