#include "spillway/runtime/host_tier.h"

#include <algorithm>

#include "spillway/device/copy_rates.h"
#include "spillway/device/cpu.h"

namespace spillway::runtime {
namespace {

double duplex_share(TransferRate out, TransferRate in, TransferRate both) {
  return std::clamp(both / (out + in), profile::kLeastDuplexShare, 1.0);
}

planner::TransferRates rates_now(device::Device& device) {
  const device::CopyRates copies = device::measure_copies(device);
  planner::TransferRates rates;
  rates.write = copies.out;
  rates.read = copies.in;
  rates.duplex_share = duplex_share(copies.out, copies.in, copies.both);
  // Copies of a GPU take little of its memory's bandwidth, and none of its multiprocessors.
  if (!device.id().is_host()) rates.interference_seconds_per_byte = 0.0;
  return rates;
}

}  // namespace

planner::TransferRates rates_of(const topology::LinkRate& link) {
  planner::TransferRates rates;
  rates.write = link.out;
  rates.read = link.in;
  rates.duplex_share = duplex_share(link.out, link.in, link.both);
  rates.write_fixed_seconds = link.out_fixed_seconds.value_or(0.0);
  rates.read_fixed_seconds = link.in_fixed_seconds.value_or(0.0);
  rates.interference_seconds_per_byte = link.interference_seconds_per_byte.value_or(0.0);
  return rates;
}

TierRates tier_rates(Bytes host_memory, Bytes page_size, planner::TransferRates disks,
                     device::Device* device, const topology::LinkRate* measured) {
  if (device != nullptr && !device->id().is_host()) disks.interference_seconds_per_byte = 0.0;
  if (host_memory == Bytes()) return {disks, std::nullopt};
  TierRates tiers;
  if (measured != nullptr)
    tiers.rates = rates_of(*measured);
  else
    tiers.rates = rates_now(device != nullptr ? *device : *device::make_cpu_device());
  tiers.far = planner::FarTier{disks, static_cast<std::uint32_t>(host_memory / page_size)};
  return tiers;
}

}  // namespace spillway::runtime
