#include "spillway/device/copy_rates.h"

#include <algorithm>
#include <memory>

#include "spillway/base/error.h"
#include "spillway/device/copy_probe.h"

namespace spillway::device {
namespace {

constexpr Bytes kBlock{std::uint64_t{2} << 20};
constexpr std::uint32_t kMostBlocks = 8;  // In either direction.
constexpr int kRounds = 3;                // The best one counts: others met somebody else.

TransferRate rate_of(CopyProbe& probe, bool goes_out, bool comes_in) {
  const BurstTimes times = probe.run({.goes_out = goes_out, .comes_in = comes_in});
  return TransferRate(static_cast<double>(times.moved.count()) / times.copies_seconds);
}

/// With all blocks; with fewer where others have nearly all of the device's memory.
std::unique_ptr<CopyProbe> probe_of(Device& device) {
  for (std::uint32_t blocks = kMostBlocks; blocks > 1; blocks /= 2) {
    try {
      return std::make_unique<CopyProbe>(device, kBlock, blocks);
    } catch (const Error&) {
    }
  }
  return std::make_unique<CopyProbe>(device, kBlock, 1);
}

}  // namespace

CopyRates measure_copies(Device& device) {
  const std::unique_ptr<CopyProbe> made = probe_of(device);
  CopyProbe& probe = *made;
  rate_of(probe, true, true);  // Takes the memory.
  CopyRates rates;
  for (int round = 0; round < kRounds; ++round) {
    rates.out = std::max(rates.out, rate_of(probe, true, false));
    rates.in = std::max(rates.in, rate_of(probe, false, true));
    rates.both = std::max(rates.both, rate_of(probe, true, true));
  }
  return rates;
}

}  // namespace spillway::device
