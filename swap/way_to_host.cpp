// What the host works on in place of the device: pages that are out, in host memory of the store.

#include <algorithm>
#include <utility>

#include "spillway/base/assert.h"
#include "way_to_host.h"

namespace spillway::swap {

using memory::PageIndex;

/// What is used past the operators of a device: nobody may wait for its end.
bool SwapEngine::State::WayToHost::is_held_for_good_locked(StorageId storage) const {
  return std::any_of(
      engine_.kernel_sets_.begin(), engine_.kernel_sets_.end(), [&](const PinSet* set) {
        return set->hold_ == Hold::kUntilFreed &&
               std::any_of(set->pins_.begin(), set->pins_.end(),
                           [&](const PinSet::Pin& pin) { return pin.storage == storage; });
      });
}

/// A place in host memory for the bytes of a page, held there. False where there is none.
bool SwapEngine::State::WayToHost::give_extent_locked(PageIndex index, HostRead& place) {
  const auto extent = engine_.store_->reserve_extent(StoreTier::kHost);
  if (!extent) return false;
  std::byte* const memory = host_->hold(*extent, engine_.transfer_size(index));
  if (memory == nullptr) {
    engine_.store_->release_extent(*extent);
    return false;
  }
  ++engine_.extents_held_;
  place = {index, *extent, memory};
  return true;
}

/// A page that is out, and not in host memory: on a disk, or without contents.
SwapEngine::State::WayToHost::Stage SwapEngine::State::WayToHost::read_locked(PageIndex index) {
  Page& page = engine_.pages_.get()[index];
  HostRead place;
  if (!give_extent_locked(index, place)) {
    engine_.host_reads_.want_room = host_->is_making_room();
    return engine_.host_reads_.want_room ? Stage::kComing : Stage::kImpossible;
  }
  if (!page.extent.is_some()) {
    page.extent = place.to;
    page.extent_since = engine_.children_.now();
    page.dirty = false;
    return Stage::kReady;
  }
  page.state = PageState::kOnHost;
  ++engine_.range_of(page).in_flight;
  engine_.host_reads_.waiting.push_back(place);
  return Stage::kComing;
}

SwapEngine::State::WayToHost::Stage SwapEngine::State::WayToHost::bring_resident_locked(
    PageIndex index, bool fills) {
  Page& page = engine_.pages_.get()[index];
  if (engine_.is_pinned(page))
    return is_held_for_good_locked(engine_.range_of(page).id) ? Stage::kImpossible : Stage::kComing;
  if (fills) {
    if (!engine_.leave_locked(index)) return Stage::kImpossible;
    engine_.drop_extent_locked(page);
  } else if (!engine_.evict_page_locked(index, false, StoreTier::kHost)) {
    return Stage::kImpossible;
  }
  return page.state == PageState::kOut ? bring_locked(index, fills) : Stage::kComing;
}

/// Starts what is missing for a page to be out and in host memory.
SwapEngine::State::WayToHost::Stage SwapEngine::State::WayToHost::bring_locked(PageIndex index,
                                                                               bool fills) {
  Page& page = engine_.pages_.get()[index];
  switch (page.state) {
    case PageState::kReadQueued:
    case PageState::kReading:
    case PageState::kOnHost: return Stage::kComing;
    case PageState::kWriteQueued: return Stage::kComing;
    case PageState::kWriting:
      if (!page.leaving && !page.cancelled && !engine_.is_pinned(page)) {
        page.leaving = true;
        ++engine_.leaving_;
      }
      return Stage::kComing;
    case PageState::kResident: return bring_resident_locked(index, fills);
    case PageState::kOut: break;
  }
  if (engine_.range_of(page).is_dropped) return Stage::kComing;
  if (page.extent.is_some()) {
    const HostExtents::Place place = host_->place_of(page.extent);
    if (place == HostExtents::Place::kThere) return Stage::kReady;
    if (place == HostExtents::Place::kLeaving) return Stage::kComing;
    if (fills) engine_.drop_extent_locked(page);
  }
  return read_locked(index);
}

/// All of them at once: half of them held, two threads could wait for each other.
bool SwapEngine::State::WayToHost::take_locked(HostHold& hold, std::span<const HostUse> uses) {
  hold.uses_.assign(uses.begin(), uses.end());
  hold.memory_.assign(uses.size(), {});
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const RangeUse& use = uses[i].use;
    const PageIndex first = engine_.range_of(use.storage).first + use.first;
    for (PageIndex index = first; index < first + use.touched(); ++index) {
      std::byte* const memory =
          host_->hold(engine_.pages_.get()[index].extent, engine_.transfer_size(index));
      if (memory == nullptr) return false;  // It has just begun to go on to the disks.
      hold.memory_[i].push_back(memory);
    }
  }
  for (const HostUse& each : uses) {
    const RangeUse& use = each.use;
    Range& range = engine_.range_of(use.storage);
    for (std::uint32_t i = use.first; i < use.first + use.touched(); ++i) {
      Page& page = engine_.pages_.get()[range.first + i];
      SPILLWAY_ASSERT(page.state == PageState::kOut);
      page.state = PageState::kOnHost;
      ++range.in_flight;
    }
    engine_.counts_.worked_on_host += engine_.page_size_ * use.touched();
    if (use.writes && range.is_guarded) engine_.end_guard_locked(range);
  }
  return true;
}

/// Whether some of them are still on their way from a disk.
bool SwapEngine::State::WayToHost::are_coming_locked(std::span<const HostUse> uses) const {
  const auto is_of = [&](const HostRead& read) {
    const std::uint32_t range = engine_.pages_.get()[read.page].range;
    return std::any_of(uses.begin(), uses.end(),
                       [&](const HostUse& each) { return each.use.storage.slot() == range; });
  };
  const HostReads& reads = engine_.host_reads_;
  return std::any_of(reads.waiting.begin(), reads.waiting.end(), is_of) ||
         std::any_of(reads.under_way.begin(), reads.under_way.end(), is_of);
}

/// Whoever wanted them in host memory does not any more.
void SwapEngine::State::WayToHost::leave_locked(Lock& lock, std::span<const HostUse> uses) {
  engine_.host_reads_.want_room = false;
  engine_.kick_locked();
  while (are_coming_locked(uses)) engine_.wait_locked(lock, false, engine_.counts_.host_wait);
  for (const HostUse& each : uses) {
    if (engine_.has_ended(each.use.storage)) continue;
    const PageIndex first = engine_.range_of(each.use.storage).first + each.use.first;
    for (PageIndex index = first; index < first + each.use.touched(); ++index) {
      const Page& page = engine_.pages_.get()[index];
      if (page.state == PageState::kOut && page.extent.is_some()) host_->let_go(page.extent);
    }
  }
}

/// False where that cannot be, or more reads than `failures` have failed.
bool SwapEngine::State::WayToHost::bring_all_locked(Lock& lock, HostHold& hold,
                                                    std::span<const HostUse> uses,
                                                    std::uint64_t failures) {
  std::vector<RangeUse> ranges;
  for (const HostUse& each : uses) ranges.push_back(each.use);
  TimePoint moved_at = engine_.clock_.now();
  while (true) {
    engine_.wait_for_dropped_locked(lock, ranges);
    engine_.end_late_uses_locked();
    if (engine_.read_failure_.count != failures) return false;
    engine_.host_reads_.want_room = false;
    Stage all = Stage::kReady;
    for (const HostUse& each : uses) {
      const PageIndex first = engine_.range_of(each.use.storage).first + each.use.first;
      for (PageIndex index = first; index < first + each.use.touched(); ++index)
        all = std::max(all, bring_locked(index, each.fills));
    }
    if (all == Stage::kReady && take_locked(hold, uses)) return true;
    const bool is_stuck = engine_.clock_.now() - moved_at > engine_.options_.patience;
    if (all == Stage::kImpossible || is_stuck) return false;
    engine_.kick_locked();
    const std::uint64_t wakes = engine_.wakes_;
    engine_.wait_locked(lock, false, engine_.counts_.host_wait);
    if (wakes != engine_.wakes_) moved_at = engine_.clock_.now();
  }
}

bool SwapEngine::State::WayToHost::hold(HostHold& hold, std::span<const HostUse> uses) {
  // Where accesses are reported the host sees the pages under their addresses.
  if (host_ == nullptr || engine_.access_ != nullptr) return false;
  Lock lock(engine_.mutex_);
  engine_.pressure_.store(true, std::memory_order_relaxed);  // From now on operators pin.
  const std::uint64_t failures = engine_.read_failure_.count;
  try {
    if (bring_all_locked(lock, hold, uses, failures)) return true;
  } catch (const RecomputeError&) {
    leave_locked(lock, uses);
    throw;
  }
  leave_locked(lock, uses);
  if (engine_.read_failure_.count != failures)
    throw UnreadableError("{}", engine_.read_failure_.detail);
  return false;
}

void SwapEngine::State::WayToHost::let_go(HostHold& hold) {
  const Lock lock(engine_.mutex_);
  for (const HostUse& each : hold.uses_) {
    Range& range = engine_.range_of(each.use.storage);
    for (std::uint32_t i = each.use.first; i < each.use.first + each.use.touched(); ++i) {
      Page& page = engine_.pages_.get()[range.first + i];
      SPILLWAY_ASSERT(page.state == PageState::kOnHost);
      page.state = PageState::kOut;
      host_->let_go(page.extent);
      --range.in_flight;
      if (range.is_dying) engine_.drop_extent_locked(page);
    }
    if (range.is_dying && range.in_flight == 0 && range.late_uses == 0) engine_.end_range(range);
  }
  hold.uses_.clear();
  hold.memory_.clear();
  engine_.wake_waiters_locked();
  engine_.kick_locked();
}

bool SwapEngine::State::WayToHost::collect_locked(std::vector<Transfer>& batch) {
  if (engine_.host_reads_.waiting.empty()) return false;
  const HostRead& read = engine_.host_reads_.waiting.front();
  ++engine_.reading_;
  --engine_.free_transfers_;
  batch.push_back({Direction::kRead, engine_.pages_.get()[read.page].extent, read.memory,
                   engine_.transfer_size(read.page), std::uint64_t{read.page}, true});
  engine_.host_reads_.under_way.push_back(read);
  engine_.host_reads_.waiting.pop_front();
  return true;
}

void SwapEngine::State::WayToHost::finish_locked(PageIndex index, const TransferResult& result) {
  const auto found =
      std::find_if(engine_.host_reads_.under_way.begin(), engine_.host_reads_.under_way.end(),
                   [&](const HostRead& read) { return read.page == index; });
  const ExtentId to = found->to;
  engine_.host_reads_.under_way.erase(found);
  Page& page = engine_.pages_.get()[index];
  --engine_.reading_;
  page.state = PageState::kOut;
  if (result.error != 0) {  // The bytes exist nowhere else.
    engine_.release_extent_locked(to);
    engine_.read_failure_ = {index, engine_.read_failure_.count + 1, result.detail};
    if (engine_.range_of(page).is_dying) engine_.drop_extent_locked(page);
    return;
  }
  engine_.drop_extent_locked(page);
  page.extent = to;
  page.extent_since = engine_.children_.now();
  if (engine_.range_of(page).is_dying) engine_.drop_extent_locked(page);
}

}  // namespace spillway::swap
