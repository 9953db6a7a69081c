// What running operators hold: whole ranges, or some pages of a range.

#include <algorithm>
#include <utility>

#include "room_wait.h"
#include "spillway/base/assert.h"

namespace spillway::swap {

using memory::PageIndex;

void SwapEngine::State::enter_locked(PinSet& set) {
  if (set.engine_ != nullptr) return;
  if (set.hold_ != Hold::kUntilFreed) ++active_sets_;
  if (set.hold_ != Hold::kOperator) kernel_sets_.push_back(&set);
}

/// The set has got nothing, or gives everything back.
void SwapEngine::State::exit_locked(const PinSet& set) {
  if (set.hold_ != Hold::kUntilFreed) --active_sets_;
  std::erase(kernel_sets_, &set);
  std::erase(paged_through_, &set);
}

/// From here on the pages of the range have ages and next uses of their own.
void SwapEngine::State::start_parts_locked(Range& range) {
  if (range.in_parts) return;
  range.in_parts = true;
  for (std::uint32_t i = 0; i < range.pages; ++i)
    pages_.get()[range.first + i].touched = static_cast<std::uint32_t>(range.last_touch);
}

/// Notes an access that nobody announced. Whoever predicted the next use did not know of it.
void SwapEngine::State::touch_page_locked(Range& range, std::uint32_t page) {
  range.last_touch = ++touch_clock_;
  pages_.get()[range.first + page].touched = static_cast<std::uint32_t>(touch_clock_);
  if (range.next_uses.empty()) {
    range.next_use = kUnknownUse;
  } else {
    range.next_uses[page] = kUnknownUse;
  }
}

void SwapEngine::State::set_next_use_locked(const RangePart& part, OpClock at) {
  Range& range = range_of(part.storage);
  const std::uint32_t end = part.first + std::min(part.count, range.pages - part.first);
  const bool is_whole = part.first == 0 && end == range.pages;
  if (is_whole) {
    range.next_use = at;
    range.next_uses.clear();
    return;
  }
  start_parts_locked(range);
  if (range.next_uses.empty()) range.next_uses.assign(range.pages, range.next_use);
  std::fill(range.next_uses.begin() + part.first, range.next_uses.begin() + end, at);
}

/// Next uses come first: fetches end at them, and evictions go by them.
void SwapEngine::State::apply_locked(const ResidencyOrders& orders) {
  now_op_ = std::max(now_op_, orders.now);
  for (const ResidencyOrders::NextUse& next : orders.next_uses)
    if (!has_ended(next.part.storage)) set_next_use_locked(next.part, next.at);
  end_some_late_uses_locked();
  for (const ResidencyOrders::WriteOut& out : orders.write_outs) write_out_locked(out);
  bool may_go_on = !fetches_.empty() && now_op_ >= fetches_.front().needed;
  if (orders.reserve_pages) {
    may_go_on |= *orders.reserve_pages < fetch_reserve_ && !fetches_.empty();
    fetch_reserve_ = *orders.reserve_pages;
  }
  for (const ResidencyOrders::Fetch& fetch : orders.fetches)
    if (!has_ended(fetch.part.storage)) fetch_locked(fetch.part, fetch.copy);
  // The first fetch has become too late, and no longer stands in the way of the next; or there is
  // more room for it.
  if (may_go_on) kick_locked();
}

void SwapEngine::State::count_missing_locked(std::span<const RangeUse> uses,
                                             MissingPages& missing) {
  for (const RangeUse& use : uses)
    missing.push_back(static_cast<std::uint32_t>(missing_pages_locked({&use, 1}, false)));
}

void SwapEngine::State::hold_locked(PinSet& set, const RangeUse& use) {
  Range& range = range_of(use.storage);
  SPILLWAY_ASSERT(use.first < range.pages && use.pages == range.pages && !range.is_dropped);
  range.last_touch = ++touch_clock_;
  if (range.late_uses > 0)  // Touched again, it is not to leave.
    std::erase_if(late_write_outs_, [&](const ResidencyOrders::WriteOut& out) {
      return out.part.storage == use.storage;
    });
  const bool is_whole = use.is_whole();
  set.pins_.push_back({use.storage, use.first, is_whole ? 0 : use.touched()});
  if (is_whole) {
    ++range.pins;
    if (!range.in_parts && set.hold_ == Hold::kOperator) return;
  } else {
    start_parts_locked(range);
    ++range.partial_pins;
  }
  for (std::uint32_t i = use.first; i < use.first + use.touched(); ++i) {
    Page& page = pages_.get()[range.first + i];
    page.pins += is_whole ? 0 : 1;
    if (set.hold_ == Hold::kKernel) page.forced = false;
    page.touched = static_cast<std::uint32_t>(touch_clock_);
  }
}

void SwapEngine::State::let_go_locked(const PinSet::Pin& pin) {
  if (has_ended(pin.storage)) return;
  Range& range = range_of(pin.storage);
  if (pin.count == 0) {
    SPILLWAY_ASSERT(range.pins > 0);
    --range.pins;
    return;
  }
  SPILLWAY_ASSERT(range.partial_pins > 0);
  --range.partial_pins;
  for (std::uint32_t i = pin.first; i < pin.first + pin.count; ++i)
    --pages_.get()[range.first + i].pins;
}

void SwapEngine::State::each_held_page_locked(const PinSet& set,
                                              const std::function<void(PageIndex)>& act) const {
  for (const PinSet::Pin& pin : set.pins_) {
    if (has_ended(pin.storage)) continue;
    const Range& range = ranges_[pin.storage.slot()];
    const std::uint32_t count = pin.count == 0 ? range.pages : pin.count;
    for (std::uint32_t i = 0; i < count; ++i) act(range.first + pin.first + i);
  }
}

/// What one operator has to have at once.
std::size_t SwapEngine::State::held_pages_locked(const PinSet* set) const {
  if (set == nullptr) return 0;
  std::vector<PageIndex> held;
  each_held_page_locked(*set, [&](PageIndex index) { held.push_back(index); });
  std::sort(held.begin(), held.end());
  return static_cast<std::size_t>(std::unique(held.begin(), held.end()) - held.begin());
}

/// How many pages are not there, or, to be written where writes are not reported, still being
/// copied out. `asks`: starts reading them, and keeps what is about to leave.
std::size_t SwapEngine::State::missing_pages_locked(std::span<const RangeUse> uses, bool asks) {
  std::size_t missing = 0;
  for (const RangeUse& use : uses) {
    const PageIndex first = range_of(use.storage).first + use.first;
    for (PageIndex index = first; index < first + use.touched(); ++index) {
      Page& page = pages_.get()[index];
      if (asks && page.state == PageState::kOut) ask_for_page_locked(index, demand_reads_);
      if (has_bytes_in_memory(page.state)) {
        if (asks) keep_locked(page);
        const bool is_copied_out = page.state == PageState::kWriting && access_ == nullptr;
        missing += use.writes && is_copied_out ? 1 : 0;
      } else {
        ++missing;
      }
    }
  }
  return missing;
}

std::vector<PageIndex> SwapEngine::State::pages_being_read_locked(std::span<const RangeUse> uses) {
  std::vector<PageIndex> pages;
  for (const RangeUse& use : uses) {
    const PageIndex first = range_of(use.storage).first + use.first;
    for (PageIndex index = first; index < first + use.touched(); ++index)
      if (pages_.get()[index].state == PageState::kReading) pages.push_back(index);
  }
  return pages;
}

/// Starts what a wait for a page that is out needs. What comes from somewhere else waits in
/// `queue`; a fault may not take the frames that others were promised.
void SwapEngine::State::ask_for_page_locked(PageIndex index, std::deque<PageIndex>& queue) {
  Page& page = pages_.get()[index];
  switch (absence_of(page)) {
    case Absence::kDropped: want_locked(range_of(page).id); return;
    case Absence::kUnfilled:
      if (&queue == &demand_reads_ && pool_->available_frames() > frames_wanted_ &&
          pool_->provide(1))
        return give_fresh_frame_locked(index);
      break;
    case Absence::kStored: break;
  }
  page.state = PageState::kReadQueued;
  queue.push_back(index);
}

void SwapEngine::State::pin(PinSet& set, std::span<const RangeUse> uses, MissingPages* absent,
                            const ResidencyOrders* orders) {
  Lock lock(mutex_);
  if (orders != nullptr) apply_locked(*orders);
  wait_for_dropped_locked(lock, uses);
  enter_locked(set);
  const std::size_t already = set.pins_.size();
  std::size_t wanted = 0;
  for (const RangeUse& use : uses) {
    hold_locked(set, use);
    wanted += use.touched();
    forget_refusals_locked(range_of(use.storage).first + use.first, use.touched());
  }
  // Who tries again after a failure gets a read of its own, also where the one before still runs.
  std::uint64_t failures = read_failure_.count;
  std::vector<PageIndex> earlier_reads = pages_being_read_locked(uses);
  const auto holds_failure = [&](const RangeUse& use) {
    const PageIndex first = range_of(use.storage).first + use.first;
    return read_failure_.page >= first && read_failure_.page - first < use.touched();
  };
  // Pages that cannot all be there at once are left to come as they are touched.
  const bool is_paged_through =
      std::find(paged_through_.begin(), paged_through_.end(), &set) != paged_through_.end();
  const bool comes_bit_by_bit = is_paged_through && held_pages_locked(&set) > pool_->limit();
  RoomWait room(*this, lock, &set, counts_.fetch_wait);
  while (!comes_bit_by_bit) {
    const std::size_t missing = missing_pages_locked(uses, !room.stands_back());
    if (missing == 0) break;
    if (absent != nullptr && absent->empty()) count_missing_locked(uses, *absent);
    start_evictions_locked();
    kick_locked();
    bool is_unreadable =
        read_failure_.count != failures && std::any_of(uses.begin(), uses.end(), holds_failure);
    if (is_unreadable && std::erase(earlier_reads, read_failure_.page) > 0) {
      is_unreadable = false;
      failures = read_failure_.count;
    }
    const std::size_t frames = pool_->available_frames();
    if (is_unreadable || !room.wait(missing - std::min(missing, frames), 0)) {
      for (; set.pins_.size() > already; set.pins_.pop_back()) let_go_locked(set.pins_.back());
      if (set.engine_ == nullptr) exit_locked(set);
      if (is_unreadable) throw UnreadableError("{}", read_failure_.detail);
      refuse_locked(wanted, &set);
    }
  }
  for (const RangeUse& use : uses) {
    if (use.writes) settle_for_writing_locked(range_of(use.storage), use.first, use.touched());
  }
}

void SwapEngine::State::page_through(PinSet& set) {
  const Lock lock(mutex_);
  enter_locked(set);
  if (access_ != nullptr) paged_through_.push_back(&set);
}

/// The same once the device has done its work. The storage may have been released since.
void SwapEngine::State::let_go_late_locked(const PinSet::Pin& pin) {
  let_go_locked(pin);
  Range& range = range_of(pin.storage);
  if (--range.late_uses > 0) return;
  if (range.is_dropped) drop_pages_locked(range);
  if (!range.is_dying) return;
  std::erase(ended_late_, range.id);
  release_pages_locked(range);
  if (range.in_flight == 0) end_range(range);
}

/// Whether anything was used until now that a device was working on.
bool SwapEngine::State::end_late_uses_locked() {
  const bool have_some = late_uses_.end_some([this](const std::vector<PinSet::Pin>& pins) {
    for (const PinSet::Pin& pin : pins) let_go_late_locked(pin);
  });
  if (!have_some) return false;
  for (const ResidencyOrders::WriteOut& out : std::exchange(late_write_outs_, {}))
    write_out_locked(out);
  wake_waiters_locked();
  return true;
}

/// Each question whether a use has ended costs a call of the device, and where there is plenty of
/// room nobody needs the answer. Asked only when room is short, it comes too late: who asks first
/// is told when all that was given to the device until then has ended.
bool SwapEngine::State::may_need_room_locked() const {
  constexpr std::size_t kPlenty = 4;  // One in so many frames.
  return pressure_.load(std::memory_order_relaxed) ||
         pool_->available_frames() < pool_->limit() / kPlenty;
}

/// Whether somebody waits for what a device may still work on.
bool SwapEngine::State::is_use_awaited_locked() const {
  return waiters_ > 0 || !fetches_.empty() || !fault_reads_.empty() || !late_write_outs_.empty();
}

/// For callers that need nothing of it: so that they do not pile up.
void SwapEngine::State::end_some_late_uses_locked() {
  if (may_need_room_locked() || late_uses_.are_many()) end_late_uses_locked();
}

bool SwapEngine::State::has_ended_by_now_locked(const device::Event& until) const {
  return until.state() == nullptr || (may_need_room_locked() && until.is_done());
}

void SwapEngine::State::unpin(PinSet& set, const ResidencyOrders* orders,
                              const device::Event& until) {
  Lock lock(mutex_);
  if (has_ended_by_now_locked(until)) {
    for (const PinSet::Pin& pin : set.pins_) let_go_locked(pin);
  } else {
    std::erase_if(set.pins_, [this](const PinSet::Pin& pin) { return has_ended(pin.storage); });
    for (const PinSet::Pin& pin : set.pins_) range_of(pin.storage).add_late_use(until);
    late_uses_.add(until, std::move(set.pins_));
  }
  set.pins_.clear();
  exit_locked(set);
  if (orders != nullptr) apply_locked(*orders);
  wake_waiters_locked();
  if (!fault_reads_.empty() || !demand_reads_.empty()) start_evictions_locked(), kick_locked();
}

}  // namespace spillway::swap
