#include "spillway/memory/frame_pool.h"

#include <algorithm>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::memory {

FramePool::FramePool(FrameSource& source, std::size_t slot_count, std::size_t limit)
    : source_(source), slot_count_(slot_count), limit_(limit) {
  SPILLWAY_ASSERT(limit <= slot_count && slot_count < SlotId::kNone);
  full_.reserve(slot_count);
  empty_.reserve(slot_count);
  for (std::size_t slot = slot_count; slot > 0; --slot) {
    empty_.emplace_back(static_cast<std::uint32_t>(slot - 1));
  }
}

bool FramePool::provide(std::size_t count) {
  while (full_.size() < count && existing_ < limit_ && refusal_.empty()) {
    const SlotId slot = take_empty_slot();
    try {
      source_.make_frame(slot);
      full_.push_back(slot);
      ++existing_;
    } catch (const Error& refused) {
      put_empty_slot(slot);
      refusal_ = refused.what();
    }
  }
  return full_.size() >= count;
}

std::optional<SlotId> FramePool::take_frame() {
  if (!provide(1)) return std::nullopt;
  const SlotId slot = full_.back();
  full_.pop_back();
  if (full_.size() < to_renew_) {
    to_renew_ = full_.size();
    source_.drop_frame(slot);
    source_.make_frame(slot);
  }
  return slot;
}

void FramePool::put_frame(SlotId slot) {
  SPILLWAY_ASSERT(full_.size() < existing_ && full_.size() + empty_.size() < slot_count_);
  full_.push_back(slot);
  if (existing_ > limit_) drop_free_frame();
}

SlotId FramePool::take_empty_slot() {
  SPILLWAY_ASSERT(!empty_.empty());
  const SlotId slot = empty_.back();
  empty_.pop_back();
  return slot;
}

void FramePool::put_empty_slot(SlotId slot) {
  SPILLWAY_ASSERT(full_.size() + empty_.size() < slot_count_);
  empty_.push_back(slot);
}

void FramePool::forget_frame() {
  SPILLWAY_ASSERT(full_.size() < existing_);
  --existing_;
}

void FramePool::set_limit(std::size_t frames) {
  SPILLWAY_ASSERT(frames <= slot_count_);
  limit_ = frames;
  while (existing_ > limit_ && !full_.empty()) drop_free_frame();
}

void FramePool::drop_free_frame() {
  SPILLWAY_ASSERT(!full_.empty());
  const SlotId slot = full_.back();
  full_.pop_back();
  to_renew_ = std::min(to_renew_, full_.size());
  source_.drop_frame(slot);
  --existing_;
  empty_.push_back(slot);
  ask_again();
}

}  // namespace spillway::memory
