#include "spillway/runtime/host_tier.h"

#include <algorithm>

#include "spillway/device/copy_rates.h"
#include "spillway/device/cpu.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::runtime {

TierRates tier_rates(const Settings& settings, const planner::TransferRates& disks) {
  if (settings.host_tier == Bytes()) return {disks, std::nullopt};
  const device::CopyRates copies = device::measure_copies(*device::make_cpu_device());
  TierRates tiers;
  tiers.rates.write_bytes_per_second = copies.out_bytes_per_second;
  tiers.rates.read_bytes_per_second = copies.in_bytes_per_second;
  tiers.rates.duplex_share = std::clamp(
      copies.both_bytes_per_second / (copies.out_bytes_per_second + copies.in_bytes_per_second),
      profile::kLeastDuplexShare, 1.0);
  tiers.far =
      planner::FarTier{disks, static_cast<std::uint32_t>(settings.host_tier / memory::kPageSize)};
  return tiers;
}

}  // namespace spillway::runtime
