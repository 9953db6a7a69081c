#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "planning/planning_rates.h"
#include "spillway/base/clock.h"

namespace spillway::cli {

/// Options of `rebalance`. Those about memory and links say what the plan leaves open, or the same
/// again.
struct RebalanceOptions {
  std::string plan;     ///< That the job runs now.
  std::string profile;  ///< Newer than it.
  std::optional<std::uint32_t> steps_left;
  std::optional<Bytes> device_memory;
  std::optional<TransferRate> link;  ///< Between ranks.
  RateOptions rates;                 ///< Of the link to the host, and the memory behind it.
  std::string out;
  bool json = false;
};

/// `spillway rebalance`: the stages of a stored plan on the costs of a new profile, the moves of
/// layers that make them even again, and whether these pay; prints, stores the plan to go on with
/// where --out names a file, and returns an exit code. Throws ConfigError for options that
/// contradict the plan and for a profile of another model, PlanError where nothing fits any more,
/// and IoError.
int rebalance_plan(const RebalanceOptions& options, std::ostream& out, const Clock& clock);

}  // namespace spillway::cli
