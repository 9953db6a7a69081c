#include "store/ram/store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "store/ram/factory.h"

namespace spillway::swap {

namespace {

std::size_t count_extents(Bytes capacity, Bytes extent_size) {
  const std::uint64_t count = capacity / extent_size;
  if (count == 0 || count >= ExtentId::kNone)
    throw IoError("a store in RAM of {} is not possible: it holds 1 to {} extents of {}", capacity,
                  ExtentId::kNone - 1, extent_size);
  return count;
}

}  // namespace

RamStore::RamStore(Bytes capacity, std::size_t queue_depth, std::shared_ptr<Notifier> notifier,
                   Bytes extent_size)
    : SpillStore({.queue_depth = queue_depth, .extent_size = extent_size}),
      wait_(std::move(notifier)),
      extent_count_(count_extents(capacity, extent_size)),
      memory_(extent_size.count() * extent_count_) {}

std::optional<ExtentId> RamStore::do_reserve_extent(StoreTier /*tier*/) {
  const std::lock_guard lock(mutex_);
  was_refused_ = free_.empty() && touched_ == extent_count_;
  if (was_refused_) return std::nullopt;
  most_in_use_ = std::max(most_in_use_, ++in_use_);
  if (free_.empty()) return ExtentId(touched_++);
  const ExtentId extent = free_.back();
  free_.pop_back();
  return extent;
}

void RamStore::do_release_extent(ExtentId extent) {
  const std::lock_guard lock(mutex_);
  SPILLWAY_ASSERT(extent.value() < touched_ && in_use_ > 0);
  free_.push_back(extent);
  --in_use_;
}

void RamStore::do_submit(const Transfer& transfer) {
  SPILLWAY_ASSERT(transfer.extent.value() < extent_count_);
  std::byte* const place = place_of(transfer.extent);
  if (transfer.direction == Direction::kWrite)
    std::memcpy(place, transfer.memory, transfer.size);
  else
    std::memcpy(transfer.memory, place, transfer.size);
  finished_.push_back({transfer, 0, {}});
  wait_.notifier().notify();
}

void RamStore::do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) {
  wait_.until_finished(results, timeout, [this](std::vector<TransferResult>& out) {
    out.insert(out.end(), finished_.begin(), finished_.end());
    finished_.clear();
  });
}

ExtentPlace RamStore::do_locate(ExtentId extent) const {
  ExtentPlace place;
  place.memory = place_of(extent);
  return place;
}

StoreReport RamStore::do_report() const {
  StoreReport report = tally();
  const std::lock_guard lock(mutex_);
  report.extents_in_use = extent_size() * in_use_;
  report.extents_peak = extent_size() * most_in_use_;
  report.capacity = extent_size() * extent_count_;
  if (was_refused_)
    report.refusal = message("No space left in RAM (the limit of {} is used up)", report.capacity);
  return report;
}

std::unique_ptr<SpillStore> make_ram_store(Bytes capacity, std::size_t queue_depth,
                                           std::shared_ptr<Notifier> notifier, Bytes extent_size) {
  return std::make_unique<RamStore>(capacity, queue_depth, std::move(notifier), extent_size);
}

}  // namespace spillway::swap
