// Which pages leave, and how a page leaves or stays after all.

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "engine_state.h"
#include "page_run.h"
#include "spillway/base/assert.h"

namespace spillway::swap {

using memory::PageIndex;

namespace {
constexpr std::size_t kFreshPages = 8;
constexpr Duration kLookEvery = std::chrono::milliseconds(1);
// Of so many frames one at most is emptied ahead of an operator that is paged through.
constexpr std::size_t kFramesPerPageAhead = 16;
}  // namespace

void SwapEngine::State::drop_extent_locked(Page& page) {
  if (!page.extent.is_some()) return;
  if (children_.may_read(page.extent_since)) {
    children_.keep(page.extent, page.extent_since);
  } else {
    release_extent_locked(page.extent);
  }
  page.extent = ExtentId();
}

void SwapEngine::State::release_extent_locked(ExtentId extent) {
  store_->release_extent(extent);
  --extents_held_;
  store_failure_.clear();  // There is room again; trying is cheap.
}

/// Releases what was kept for forked children that are gone.
void SwapEngine::State::end_children_locked() {
  if (children_.children() == 0) return;
  std::vector<ExtentId> free;
  children_.look_for_ends(free);
  for (const ExtentId extent : free) release_extent_locked(extent);
}

bool SwapEngine::State::can_leave_locked(const Page& page, bool forced) const {
  if (page.state != PageState::kResident || page.refusals >= kRefusalsMax) return false;
  if (page.dirty && !store_failure_.empty()) return false;
  return forced || !is_pinned(page);
}

/// Takes the frame away from a resident page whose bytes are safe or no longer needed. Returns
/// false when the kernel holds the frame for somebody else, and the page stays.
bool SwapEngine::State::leave_locked(PageIndex index) {
  Page& page = pages_.get()[index];
  const memory::SlotId slot = pool_->take_empty_slot();
  const bool has_ended = range_of(page).is_dying;
  const memory::MoveResult moved =
      has_ended ? memory_->unmap_ended(slot, index) : memory_->unmap(slot, index);
  if (moved == memory::MoveResult::kMoved) {
    pool_->put_frame(slot);
  } else {
    pool_->put_empty_slot(slot);
    if (!has_ended) {
      stay_locked(index);
      return false;
    }
    memory_->drop(index);
    pool_->forget_frame();
  }
  page.state = PageState::kOut;
  page.write_protected = false;
  return true;
}

/// Keeps a page that the kernel holds: for I/O of the program, or because it is locked. The first
/// may change it unseen, whatever its copy says.
void SwapEngine::State::stay_locked(PageIndex index) {
  Page& page = pages_.get()[index];
  page.arrival = ++arrivals_;  // Not to be tried again at once.
  if (page.refusals < kRefusalsMax) ++page.refusals;
  ++refusals_;
  if (!page.write_protected) return;
  // A guarded page never becomes writable for a moment: somebody may be waiting for that.
  if (!range_of(page).is_guarded) {
    allow_writes_locked(index, 1);
    page.write_protected = false;
  }
  page.dirty = true;
  drop_extent_locked(page);
}

void SwapEngine::State::forget_refusals_locked(PageIndex first, std::uint32_t count) {
  for (PageIndex index = first; index < first + count; ++index) pages_.get()[index].refusals = 0;
}

void SwapEngine::State::forget_refusals_locked() {
  for (const Range& range : ranges_)
    if (range.is_live && !range.is_dying) forget_refusals_locked(range.first, range.pages);
}

bool SwapEngine::State::evict_page_locked(PageIndex index, bool forced, StoreTier tier) {
  Page& page = pages_.get()[index];
  if (!can_leave_locked(page, forced)) return false;
  if (!page.dirty) {
    if (!leave_locked(index)) return false;
    counts_.left_clean += page_size_;
    return true;
  }
  page.state = PageState::kWriteQueued;
  page.tier = tier;
  page.leaving = true;
  page.forced = forced;
  page.cancelled = false;
  ++leaving_;
  writes_.push_back(index);
  return true;
}

/// Orders pages by how little they are missed: the larger, the sooner they go. `age`: for how many
/// touches of others they have not been used.
static std::uint64_t eviction_priority(OpClock next_use, OpClock now, std::uint64_t age) {
  if (next_use == kNeverUsed) return 0;
  if (next_use != kUnknownUse && next_use >= now) return next_use - now;
  // Without a prediction: as long as it was not used, it will not be used.
  return age;
}

/// Pages of one range that are missed alike.
struct SwapEngine::State::Candidate {
  std::uint64_t eviction_priority;
  std::uint32_t id;
  std::uint32_t first;
  std::uint32_t count;
};

std::vector<SwapEngine::State::Candidate> SwapEngine::State::candidates_locked() const {
  std::vector<Candidate> candidates;
  candidates.reserve(ranges_.size());
  for (std::uint32_t id = 0; id < ranges_.size(); ++id) {
    const Range& range = ranges_[id];
    if (!range.is_live || range.is_dying || range.pins > 0) continue;
    if (!range.in_parts) {
      const std::uint64_t age = touch_clock_ - range.last_touch;
      candidates.push_back({eviction_priority(range.next_use, now_op_, age), id, 0, range.pages});
      continue;
    }
    for (std::uint32_t i = 0; i < range.pages; ++i) {
      const Page& page = pages_.get()[range.first + i];
      if (page.state != PageState::kResident || page.pins > 0) continue;
      const OpClock next_use = range.next_use_of(i);
      const std::uint32_t age = static_cast<std::uint32_t>(touch_clock_) - page.touched;
      const std::uint64_t key = eviction_priority(next_use, now_op_, age);
      Candidate* const last = candidates.empty() ? nullptr : &candidates.back();
      if (last != nullptr && last->id == id && last->first + last->count == i &&
          last->eviction_priority == key) {
        ++last->count;
      } else {
        candidates.push_back({key, id, i, 1});
      }
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.eviction_priority != b.eviction_priority)
      return a.eviction_priority > b.eviction_priority;
    return a.id != b.id ? a.id < b.id : a.first > b.first;
  });
  return candidates;
}

/// An access may span two pages, and a thread that faults needs time to run: pages that have just
/// come are spared while there is anything else, or two of them could push each other out for ever.
static bool is_fresh(const Page& page, std::uint32_t arrivals, std::size_t frames) {
  return arrivals - page.arrival < std::min(kFreshPages, frames / 2);
}

std::size_t SwapEngine::State::evict_unpinned_locked(std::size_t wanted) {
  const std::vector<Candidate> candidates = candidates_locked();
  std::size_t started = 0;
  for (const bool spares_fresh : {true, false}) {
    for (const Candidate& candidate : candidates) {
      const Range& range = ranges_[candidate.id];
      const PageIndex first = range.first + candidate.first;
      for (std::uint32_t i = candidate.count; i-- > 0 && started < wanted;) {
        if (spares_fresh && is_fresh(pages_.get()[first + i], arrivals_, pool_->limit())) continue;
        if (evict_page_locked(first + i, false)) ++started;
      }
      if (started >= wanted) return started;
    }
  }
  return started;
}

/// Takes pages that running operators hold, but for those of `spared` and of system calls.
///
/// Of operators that are paged through, at random. Such a kernel sweeps over its tensors again and
/// again, or moves a window over them. In the order of their arrival each page of a sweep over a
/// little more than memory would leave right before it is touched again; at random most of them
/// stay, and a window loses few of its own.
///
/// Of any, the longest resident first: a page that has just come must stay long enough to be used,
/// or two accesses would chase each other for ever.
std::size_t SwapEngine::State::evict_pinned_locked(std::size_t wanted, const PinSet* spared,
                                                   Holders holders) {
  // Whoever holds them would not notice that they are gone.
  if (access_ == nullptr) return 0;
  std::unordered_set<PageIndex> staying;
  const auto stay = [&](PageIndex index) { staying.insert(index); };
  for (const PinSet* set : kernel_sets_)
    if (set->hold_ != Hold::kSystemCall) each_held_page_locked(*set, stay);
  if (spared != nullptr) each_held_page_locked(*spared, stay);
  std::vector<PageIndex> candidates;
  const auto add = [&](PageIndex index) {
    if (can_leave_locked(pages_.get()[index], true) && !staying.contains(index))
      candidates.push_back(index);
  };
  if (holders == Holders::kPagedThrough) {
    for (const PinSet* set : paged_through_) each_held_page_locked(*set, add);
    std::shuffle(candidates.begin(), candidates.end(), random_);
    std::stable_partition(candidates.begin(), candidates.end(), [this](PageIndex index) {
      return !is_fresh(pages_.get()[index], arrivals_, pool_->limit());
    });
  } else {
    for (const Range& range : ranges_) {
      const bool is_held = range.pins > 0 || range.partial_pins > 0;
      if (!range.is_live || range.is_dying || !is_held) continue;
      for (std::uint32_t i = 0; i < range.pages; ++i) add(range.first + i);
    }
    std::sort(candidates.begin(), candidates.end(), [this](PageIndex a, PageIndex b) {
      return pages_.get()[a].arrival < pages_.get()[b].arrival;
    });
  }
  std::size_t started = 0;
  for (const PageIndex index : candidates) {
    if (started == wanted) break;
    started += evict_page_locked(index, true) ? 1 : 0;
  }
  return started;
}

/// Frames that somebody waits for.
std::size_t SwapEngine::State::wanted_frames_locked() {
  // Queued pages may have come in, or died, for another reason; they want nothing any more.
  const auto is_stale = [this](PageIndex index) {
    return pages_.get()[index].state != PageState::kReadQueued;
  };
  std::erase_if(fault_reads_, is_stale);
  std::erase_if(demand_reads_, is_stale);
  return fault_reads_.size() + demand_reads_.size() + frames_wanted_;
}

void SwapEngine::State::start_evictions_locked() {
  end_late_uses_locked();
  const std::size_t wanted = wanted_frames_locked();
  const std::size_t coming = pool_->available_frames() + leaving_;
  if (wanted <= coming) return;
  pressure_.store(true, std::memory_order_relaxed);
  std::size_t missing = wanted - coming;
  missing -= std::min(missing, evict_unpinned_locked(missing));
  if (missing == 0 || leaving_ > 0) return;
  if (!paged_through_.empty()) {
    // A few at once, so that one is written while another is read.
    const std::size_t ahead = std::min(kFreshPages, pool_->limit() / kFramesPerPageAhead);
    missing -= std::min(
        missing, evict_pinned_locked(std::max(missing, ahead), nullptr, Holders::kPagedThrough));
  }
  // Whoever faults cannot be refused: its pages may be held by an operator that waits for it.
  const std::size_t owed = std::min(missing, fault_reads_.size());
  if (owed > 0) evict_pinned_locked(owed, nullptr, Holders::kAny);
}

Bytes SwapEngine::State::make_room(Bytes wanted) {
  Lock lock(mutex_);
  const std::size_t count = std::min(pages_for(wanted), pool_->existing_frames());
  std::size_t given = 0;
  TimePoint moved_at = clock_.now();
  while (given < count) {
    end_late_uses_locked();
    const std::size_t owed = wanted_frames_locked();  // They go to those who wait.
    if (pool_->free_frames() > owed) {
      pool_->drop_free_frame();
      ++given;
      moved_at = clock_.now();
      continue;
    }
    pressure_.store(true, std::memory_order_relaxed);  // From now on operators pin.
    const std::size_t leaving = pool_->free_frames() + leaving_;
    const std::size_t missing = owed + count - given;
    if (leaving < missing) evict_unpinned_locked(missing - leaving);
    if (pool_->free_frames() > owed) continue;
    // Other threads may give the device work for as long as they like.
    const bool is_stuck = clock_.now() - moved_at > options_.patience;
    if (is_stuck || (leaving_ + reading_ + writing_ == 0 && late_uses_.empty())) break;
    kick_locked();
    wait_locked(lock, false, counts_.room_wait);
  }
  return page_size_ * given;
}

void SwapEngine::State::stop_moving_ahead() {
  Lock lock(mutex_);
  moves_ahead_ = false;
  fetches_.clear();
  late_write_outs_.clear();
  std::size_t left = reading_ + writing_;
  for (TimePoint since = clock_.now(); left > 0 && clock_.now() - since <= options_.patience;) {
    changed_.wait_for(lock, kLookEvery);
    if (left != reading_ + writing_) since = clock_.now();
    left = reading_ + writing_;
  }
}

void SwapEngine::State::write_out_locked(const ResidencyOrders::WriteOut& out) {
  const RangePart& part = out.part;
  std::uint32_t pages = out.pages;
  if (has_ended(part.storage) || !moves_ahead_) return;
  const Range& range = range_of(part.storage);
  if (range.late_uses > 0) {  // Once the device has done its work.
    late_write_outs_.push_back(out);
    kick_locked();  // The end of that use is to be seen soon.
    return;
  }
  if (range.pins > 0) return;
  pressure_.store(true, std::memory_order_relaxed);
  const std::uint32_t end = part.first + std::min(part.count, range.pages - part.first);
  for (std::uint32_t i = end; i-- > part.first && pages > 0;) {
    const Page& page = pages_.get()[range.first + i];
    StoreTier tier = StoreTier::kAny;
    if (out.far_pages) tier = pages > *out.far_pages ? StoreTier::kHost : StoreTier::kFar;
    const bool gone =
        page.state != PageState::kResident || evict_page_locked(range.first + i, false, tier);
    if (gone) --pages;
  }
  kick_locked();
  wake_waiters_locked();
}

/// Keeps a page that is on its way out. A write in flight makes a copy of it.
void SwapEngine::State::keep_locked(Page& page) {
  if (page.state == PageState::kWriteQueued) {
    cancel_write_locked(page);
  } else if (page.state == PageState::kWriting && page.leaving && !page.forced) {
    page.leaving = false;
    --leaving_;
  }
}

/// Keeps a page that was to be written out. A write in flight goes on and is ignored.
void SwapEngine::State::cancel_write_locked(Page& page) {
  if (page.leaving) --leaving_;
  page.leaving = false;
  page.forced = false;
  if (page.state == PageState::kWriteQueued) {
    page.state = PageState::kResident;
  } else {
    SPILLWAY_ASSERT(page.state == PageState::kWriting);
    page.cancelled = true;
    ++counts_.cancelled_writes;
  }
}

/// Makes resident pages writable and forgets their copies in the store. The range is guarded no
/// more: whoever announced this write has seen to what a guard is for.
void SwapEngine::State::settle_for_writing_locked(Range& range, std::uint32_t first,
                                                  std::uint32_t count) {
  const auto make_writable = [this](PageIndex from, std::uint32_t pages) {
    allow_writes_locked(from, pages);
  };
  PageRun run;
  for (PageIndex index = range.first + first; index < range.first + first + count; ++index) {
    Page& page = pages_.get()[index];
    const bool is_writing = page.state == PageState::kWriting && !page.cancelled;
    if (page.state == PageState::kWriteQueued || is_writing) cancel_write_locked(page);
    // Else it comes in when it is touched, and writable if that is a write.
    if (page.state != PageState::kResident && page.state != PageState::kWriting) continue;
    if (std::exchange(page.write_protected, false)) run.add(index, make_writable);
    page.dirty = true;
    if (page.state == PageState::kResident) drop_extent_locked(page);
  }
  run.end(make_writable);
  if (range.is_guarded) end_guard_locked(range);
}

}  // namespace spillway::swap
