#pragma once

#include <optional>

#include "spillway/planner/swap_plan.h"
#include "spillway/runtime/settings/settings.h"

namespace spillway::runtime {

/// Rates for plans: of one store, or of two tiers.
struct TierRates {
  planner::TransferRates rates;         ///< Rates of the disks, or of the link to host memory.
  std::optional<planner::FarTier> far;  ///< The disks, where host memory lies before them.
};

/// Of a run with these settings, whose disks have these rates. Where there is host memory before
/// them, measures in some milliseconds how fast this machine copies.
TierRates tier_rates(const Settings& settings, const planner::TransferRates& disks);

}  // namespace spillway::runtime
