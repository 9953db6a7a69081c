#pragma once

#include <optional>

#include "spillway/base/bytes.h"
#include "spillway/device/device.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::runtime {

/// Rates for plans: of one store, or of two tiers.
struct TierRates {
  planner::TransferRates rates;         ///< Rates of the disks, or of the link to host memory.
  std::optional<planner::FarTier> far;  ///< The disks, where host memory lies before them.
};

/// With so much host memory, in pages, before disks of these rates. Where there is some, measures
/// in some milliseconds how fast pages of `device` are copied to it; null: the CPU's.
TierRates tier_rates(Bytes host_memory, Bytes page_size, const planner::TransferRates& disks,
                     device::Device* device = nullptr);

}  // namespace spillway::runtime
