#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "spillway/profile/step_profile.h"

namespace spillway::profile {

// Published traces as profiles. All throw ConfigError that begins with `name` (the file) and tells
// line or place of what is wrong. What is read how stands in trace_import.md.

/// Operator log of the DTR prototype (repository uwsampl/dtr-prototype): JSON lines.
StepProfile import_dtr(std::string_view text, const std::string& name);

/// Layer graph of PipeDream's profiler (repository msr-fiddle/pipedream): lines of nodes and edges.
StepProfile import_pipedream(std::string_view text, const std::string& name);

struct PiperOptions {
  std::uint32_t tensor_parallel = 1;  ///< Degree that every layer is split into.
  std::uint32_t micro_batches = 1;    ///< That a layer works on at once: times and activations.
};

/// Layer costs of Piper (repository msr-fiddle/piper): one JSON object.
StepProfile import_piper(std::string_view text, const std::string& name,
                         const PiperOptions& options = {});

}  // namespace spillway::profile
