#include "spillway/device/copy_rates.h"

#include <algorithm>

#include "spillway/device/copy_probe.h"

namespace spillway::device {
namespace {

constexpr Bytes kBlock{std::uint64_t{2} << 20};
constexpr std::uint32_t kBlocks = 8;  // In either direction.
constexpr int kRounds = 3;            // The best one counts: others met somebody else.

double rate_of(CopyProbe& probe, bool goes_out, bool comes_in) {
  const BurstTimes times = probe.run({.goes_out = goes_out, .comes_in = comes_in});
  return static_cast<double>(times.moved.count()) / times.copies_seconds;
}

}  // namespace

CopyRates measure_copies(Device& device) {
  CopyProbe probe(device, kBlock, kBlocks);
  rate_of(probe, true, true);  // Takes the memory.
  CopyRates rates;
  for (int round = 0; round < kRounds; ++round) {
    rates.out_bytes_per_second = std::max(rates.out_bytes_per_second, rate_of(probe, true, false));
    rates.in_bytes_per_second = std::max(rates.in_bytes_per_second, rate_of(probe, false, true));
    rates.both_bytes_per_second = std::max(rates.both_bytes_per_second, rate_of(probe, true, true));
  }
  return rates;
}

}  // namespace spillway::device
