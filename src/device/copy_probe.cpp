#include "spillway/device/copy_probe.h"

#include <algorithm>

#include "spillway/base/error.h"

namespace spillway::device {
namespace {

void require(const Event& event, DeviceId device) {
  const Outcome outcome = event.wait();
  if (!outcome.succeeded())
    throw Error("copies between {} and host memory fail: {}", device, outcome.error);
}

}  // namespace

CopyProbe::CopyProbe(Device& device, Bytes block, std::uint32_t blocks)
    : block_(block),
      blocks_(blocks),
      memory_(device.allocate(block * blocks * 2)),
      device_(device),
      slabs_(device, {.slab_size = block,
                      .slab_count = blocks * 2,
                      .pinning = device.id().is_host() ? Pinning::kPageable : Pinning::kPinned}),
      out_(device.make_queue("probe-out")),
      in_(device.make_queue("probe-in")),
      work_(device.make_queue("probe-work")) {
  while (auto slab = slabs_.take()) held_.push_back(std::move(*slab));
}

CopyProbe::Moments CopyProbe::give(const Burst& burst) {
  if (burst.work > 0 && worked_on_.span().size == Bytes())
    worked_on_ = device_.allocate(kWorkBlock * 2);
  Moments moments;
  moments.begin = out_->record(Timing::kKept);
  in_->wait(moments.begin);
  work_->wait(moments.begin);
  for (std::uint32_t i = 0; i < burst.work; ++i)
    work_->copy(worked_on_.span().part(kWorkBlock * (i % 2), kWorkBlock),
                worked_on_.span().part(kWorkBlock * ((i + 1) % 2), kWorkBlock));
  for (std::uint32_t i = 0; i < burst.times * blocks_; ++i) {
    const std::uint32_t which = i % blocks_;
    if (burst.goes_out) out_->copy(held_[which].span(), block(which));
    if (burst.comes_in) in_->copy(block(blocks_ + which), held_[blocks_ + which].span());
  }
  out_->wait(in_->record());
  moments.copies_end = out_->record(Timing::kKept);
  moments.work_end = work_->record(Timing::kKept);
  return moments;
}

BurstTimes CopyProbe::run(const Burst& burst) {
  const Moments moments = give(burst);
  require(moments.copies_end, out_->device());
  require(moments.work_end, out_->device());
  const auto since_begin = [&](const Event& end) {
    return std::max(seconds(elapsed(moments.begin, end)), 1e-9);
  };
  const std::uint64_t directions = (burst.goes_out ? 1 : 0) + (burst.comes_in ? 1 : 0);
  return {since_begin(moments.copies_end), since_begin(moments.work_end),
          block_ * (blocks_ * burst.times * directions)};
}

Event CopyProbe::start(const Burst& burst) {
  const Moments moments = give(burst);
  out_->wait(moments.work_end);
  return out_->record();
}

}  // namespace spillway::device
