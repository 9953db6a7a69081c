#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planning/plan_command.h"

namespace spillway::cli {

/// An option with what was written behind it.
struct GivenOption {
  const char* option;
  const std::string* text;
};

/// Throws ConfigError "OPTION TEXT REASON" for the first one that was given.
void refuse_any(const std::vector<GivenOption>& options, const char* reason);

/// What is about one device and its budget.
std::vector<GivenOption> options_of_one_device(const PlanOptions& options);

/// What says how a model runs on many ranks; not how many there are, nor who cuts.
std::vector<GivenOption> options_of_job(const PlanOptions& options);

/// Throws ConfigError where --ranks is missing, or no count.
std::uint32_t ranks_in(const JobOptions& options);

}  // namespace spillway::cli
