#include "spillway/device/copy_rates.h"

#include <algorithm>
#include <array>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/device/host_slabs.h"

namespace spillway::device {
namespace {

constexpr Bytes kBlock{std::uint64_t{2} << 20};
constexpr std::uint32_t kMostBlocks = 8;  // In either direction.
constexpr int kRounds = 3;                // The best one counts: others met somebody else.

/// For all blocks; for fewer where others have nearly all of the device's memory.
DeviceMemory memory_for(Device& device) {
  for (std::uint32_t blocks = kMostBlocks; blocks > 1; blocks /= 2) {
    try {
      return device.allocate(kBlock * blocks * 2);
    } catch (const Error&) {
    }
  }
  return device.allocate(kBlock * 2);
}

class CopyProbe {
 public:
  explicit CopyProbe(Device& device)
      : memory_(memory_for(device)),
        blocks_(static_cast<std::uint32_t>(memory_.span().size / kBlock) / 2),
        slabs_(device, {.slab_size = kBlock,
                        .slab_count = blocks_ * 2,
                        .pinning = device.id().is_host() ? Pinning::kPageable : Pinning::kPinned}),
        out_(device.make_queue("probe-out")),
        in_(device.make_queue("probe-in")) {
    while (auto slab = slabs_.take()) held_.push_back(std::move(*slab));
  }

  /// Bytes per second of the directions that are asked for.
  double run(bool goes_out, bool comes_in) {
    const Event begin = out_->record(Timing::kKept);
    in_->wait(begin);
    for (std::uint32_t i = 0; i < blocks_; ++i) {
      if (goes_out) out_->copy(held_[i].span(), block(i));
      if (comes_in) in_->copy(block(blocks_ + i), held_[blocks_ + i].span());
    }
    const Event came = in_->record();
    out_->wait(came);
    const Event end = out_->record(Timing::kKept);
    const Outcome outcome = end.wait();
    const Outcome of_other = came.wait();
    if (!outcome.succeeded() || !of_other.succeeded())
      throw Error("copies between {} and host memory fail: {}", out_->device(),
                  outcome.succeeded() ? of_other.error : outcome.error);
    const Bytes moved = kBlock * (blocks_ * ((goes_out ? 1 : 0) + (comes_in ? 1 : 0)));
    const double time = std::max(seconds(elapsed(begin, end)), 1e-9);
    return static_cast<double>(moved.count()) / time;
  }

 private:
  DeviceSpan block(std::uint32_t index) const {
    return memory_.span().part(kBlock * index, kBlock);
  }

  DeviceMemory memory_;
  const std::uint32_t blocks_;
  HostSlabs slabs_;
  std::vector<HostSlab> held_;
  std::unique_ptr<Queue> out_;
  std::unique_ptr<Queue> in_;
};

}  // namespace

CopyRates measure_copies(Device& device) {
  CopyProbe probe(device);
  probe.run(true, true);  // Takes the memory.
  CopyRates rates;
  for (int round = 0; round < kRounds; ++round) {
    rates.out_bytes_per_second = std::max(rates.out_bytes_per_second, probe.run(true, false));
    rates.in_bytes_per_second = std::max(rates.in_bytes_per_second, probe.run(false, true));
    rates.both_bytes_per_second = std::max(rates.both_bytes_per_second, probe.run(true, true));
  }
  return rates;
}

}  // namespace spillway::device
