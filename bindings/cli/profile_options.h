#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "command_line.h"
#include "spillway/base/named_values.h"

namespace spillway::cli {

enum class TraceFormat { kDtr, kPipedream, kPiper };

/// Formats that `profile --import` reads.
inline constexpr std::array<Named<TraceFormat>, 3> kTraceFormats{
    {{"dtr", TraceFormat::kDtr},
     {"pipedream", TraceFormat::kPipedream},
     {"piper", TraceFormat::kPiper}}};

/// Options of `spillway profile`, beside settings and the program.
struct ProfileOptions {
  std::string out;
  std::optional<std::uint32_t> steps;
  std::optional<std::uint32_t> kind;
  std::optional<TraceFormat> format;  ///< Format of a published trace; none: a program runs.
  std::string trace;                  ///< File of that trace.
  std::uint32_t tensor_parallel = 1;
  std::uint32_t micro_batches = 1;
};

/// The options and the help of `spillway profile`. `options` must outlive the parsing.
CommandLine profile_command_line(ProfileOptions& options);

}  // namespace spillway::cli
