#include "spillway/runtime/host_tier.h"

#include <algorithm>

#include "spillway/device/copy_rates.h"
#include "spillway/device/cpu.h"

namespace spillway::runtime {

TierRates tier_rates(Bytes host_memory, Bytes page_size, const planner::TransferRates& disks,
                     device::Device* device) {
  if (host_memory == Bytes()) return {disks, std::nullopt};
  const device::CopyRates copies =
      device::measure_copies(device != nullptr ? *device : *device::make_cpu_device());
  TierRates tiers;
  tiers.rates.write_bytes_per_second = copies.out_bytes_per_second;
  tiers.rates.read_bytes_per_second = copies.in_bytes_per_second;
  tiers.rates.duplex_share = std::clamp(
      copies.both_bytes_per_second / (copies.out_bytes_per_second + copies.in_bytes_per_second),
      profile::kLeastDuplexShare, 1.0);
  tiers.far = planner::FarTier{disks, static_cast<std::uint32_t>(host_memory / page_size)};
  return tiers;
}

}  // namespace spillway::runtime
