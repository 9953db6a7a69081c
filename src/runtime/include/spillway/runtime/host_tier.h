#pragma once

#include <optional>

#include "spillway/base/bytes.h"
#include "spillway/device/device.h"
#include "spillway/planner/swap_plan.h"
#include "spillway/topology/link_rate.h"

namespace spillway::runtime {

/// Rates for plans: of one store, or of two tiers.
struct TierRates {
  planner::TransferRates rates;         ///< Rates of the disks, or of the link to host memory.
  std::optional<planner::FarTier> far;  ///< The disks, where host memory lies before them.
};

/// With so much host memory, in pages, before disks of these rates. Where there is some, and the
/// link of the device was not measured by `spillway bench-io`, measures in some milliseconds how
/// fast its pages are copied there. `device`: null for the CPU's. Operators of a GPU run beside the
/// disks of its host and are not slowed down by them.
TierRates tier_rates(Bytes host_memory, Bytes page_size, planner::TransferRates disks,
                     device::Device* device = nullptr,
                     const topology::LinkRate* measured = nullptr);

/// What plans take of a link that `spillway bench-io` has measured.
planner::TransferRates rates_of(const topology::LinkRate& link);

}  // namespace spillway::runtime
