#include "room_wait.h"

#include <string>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/log.h"

namespace spillway::swap {

using memory::PageIndex;

namespace {
constexpr Duration kFirstPause = std::chrono::milliseconds(20);
constexpr std::chrono::milliseconds kWaitMax(20);
constexpr std::chrono::milliseconds kLateWaitMax(1);

thread_local Duration waited_here{0};
}  // namespace

Duration SwapEngine::waited_by_this_thread() { return waited_here; }

void SwapEngine::State::refuse_locked(std::size_t pages, const PinSet* within) const {
  if (!store_failure_.empty()) throw StoreError("{}", store_failure_);
  const std::size_t held = held_pages_locked(within);
  if (pages_pinned_by_kernel_locked() > 0 && pages + held <= pool_->limit())
    throw PinnedByKernelError("no room for {} under a budget of {}: {}", page_size_ * pages,
                              options_.budget, pinned_by_kernel_text_locked());
  const std::string obstacle = late_uses_.obstacle();
  if (!obstacle.empty() && pages + held <= pool_->limit())
    throw NotToldError("no room for {} under a budget of {} while work goes on that uses the rest: "
                       "{}; give it a larger budget, so that what is captured and what ran before "
                       "it fit in together",
                       page_size_ * pages, options_.budget, obstacle);
  throw NoRoomError(page_size_ * pages, page_size_ * held, Bytes(small_granted_.load()),
                    options_.budget, pool_->refusal());
}

std::string SwapEngine::State::pinned_by_kernel_text_locked() const {
  return message("the kernel keeps {} of tensors in memory, which the program has locked (mlock, "
                 "mlockall) or a device uses",
                 page_size_ * pages_pinned_by_kernel_locked());
}

/// Pages that were to leave, and that the kernel kept when they were tried last.
std::size_t SwapEngine::State::pages_pinned_by_kernel_locked() const {
  std::size_t kept = 0;
  for (const Range& range : ranges_) {
    if (!range.is_live || range.is_dying) continue;
    const Page* const first = pages_.get() + range.first;
    kept +=
        static_cast<std::size_t>(std::count_if(first, first + range.pages, [](const Page& page) {
          return page.state == PageState::kResident && page.refusals > 0;
        }));
  }
  return kept;
}

/// Who is woken counts as running from now on, not when it has got the mutex: meanwhile somebody
/// else might conclude that all are stuck.
void SwapEngine::State::wake_waiters_locked() {
  if (waiters_ == 0) return;
  ++wakes_;
  waiting_sets_ = 0;
  changed_.notify_all();
}

void SwapEngine::State::wait_locked(Lock& lock, bool holds_pins, Duration& waited) {
  const TimePoint start = clock_.now();
  const std::uint64_t wakes = wakes_;
  waiting_sets_ += holds_pins ? 1 : 0;
  ++waiters_;
  // The time limit bounds how long it goes unnoticed that the kernel keeps a page no more, that a
  // device has done its work, or that there is room in host memory.
  const bool is_asked_often = !late_uses_.empty() || host_reads_.want_room;
  changed_.wait_for(lock, is_asked_often ? kLateWaitMax : kWaitMax);
  --waiters_;
  if (wakes == wakes_) waiting_sets_ -= holds_pins ? 1 : 0;
  const Duration passed = clock_.now() - start;
  waited += passed;
  waited_here += passed;
  end_late_uses_locked();
}

void SwapEngine::State::acquire_frames_locked(Lock& lock, std::vector<memory::SlotId>& frames,
                                              std::size_t count, const PinSet* within) {
  frames_wanted_ += count;
  RoomWait room(*this, lock, within, counts_.room_wait);
  // All at once: two threads that each hold half of what they want would wait for ever. A fault may
  // be what the holders of all frames wait for: it goes first.
  const auto has_room = [&] {
    return pool_->available_frames() >= count && fault_reads_.empty() && !room.stands_back() &&
           pool_->provide(count);
  };
  while (!has_room()) {
    start_evictions_locked();
    if (has_room()) break;
    kick_locked();
    const std::size_t missing =
        count + fault_reads_.size() - std::min(count, pool_->available_frames());
    if (!room.wait(missing, count)) {
      frames_wanted_ -= count;
      refuse_locked(count, within);
    }
  }
  frames_wanted_ -= count;
  while (frames.size() < count) frames.push_back(*pool_->take_frame());
  note_counted_locked();
}

SwapEngine::State::RoomWait::RoomWait(State& state, Lock& lock, const PinSet* within,
                                      Duration& waited)
    : state_(state), lock_(lock), within_(within), waited_(waited), refusals_(state.refusals_) {
  state.pool_->ask_again();
}

SwapEngine::State::RoomWait::~RoomWait() {
  if (state_.first_in_line_ != this) return;
  state_.first_in_line_ = nullptr;
  state_.wake_waiters_locked();
}

bool SwapEngine::State::RoomWait::progress_is_possible() {
  const std::size_t stuck_sets = state_.waiting_sets_ + (within_ != nullptr ? 1 : 0);
  const bool reads_start = state_.pool_->available_frames() > 0 &&
                           (!state_.fault_reads_.empty() || !state_.demand_reads_.empty());
  return reads_start || state_.leaving_ + state_.reading_ + state_.writing_ > 0 ||
         state_.active_sets_ > stuck_sets || late_uses_may_end();
}

/// Some kernels take long. A stream may tell nothing, though, until this thread goes on.
bool SwapEngine::State::RoomWait::late_uses_may_end() {
  if (state_.late_uses_.empty()) return false;
  const TimePoint now = state_.clock_.now();
  if (!no_use_ended_since_ || ended_uses_ != state_.late_uses_.ended()) no_use_ended_since_ = now;
  ended_uses_ = state_.late_uses_.ended();
  return now - *no_use_ended_since_ <= state_.options_.patience ||
         state_.late_uses_.obstacle().empty();
}

/// Tells, once, that nothing has moved for long because of a device.
bool SwapEngine::State::RoomWait::tells_of_work() {
  if (state_.access_ != nullptr || std::exchange(is_told_, true)) return false;
  const std::string text = message(
      "{} has had no room for {} s, since {}: the run waits. If it goes on like this, something "
      "hangs: a kernel, a collective whose other ranks are gone, or a thread in the middle of an "
      "operator (py-spy dump, gdb -p)",
      state_.memory_->device(),
      std::chrono::duration_cast<std::chrono::seconds>(state_.options_.patience).count(),
      state_.late_uses_.empty() ? "operators of other threads hold it"
                                : "work that it was given goes on");
  lock_.unlock();
  log_warning("{}", text);
  lock_.lock();
  return true;
}

/// An operator may wait for a thread that waits for the operator's pages.
bool SwapEngine::State::RoomWait::is_out_of_patience() {
  const TimePoint now = state_.clock_.now();
  const bool is_unchanged = unchanged_since_.has_value() && wakes_ == state_.wakes_;
  if (is_unchanged && now - *unchanged_since_ <= state_.options_.patience) return false;
  wakes_ = state_.wakes_;
  unchanged_since_ = now;
  return is_unchanged;
}

bool SwapEngine::State::RoomWait::take_from_others(std::size_t missing, std::size_t fresh) {
  if (state_.held_pages_locked(within_) + fresh > state_.pool_->limit()) return false;
  // What the others have asked for would take the frames again. They ask anew.
  for (const PageIndex index : state_.demand_reads_) {
    Page& page = state_.pages_.get()[index];
    if (page.state == PageState::kReadQueued) page.state = PageState::kOut;
  }
  state_.demand_reads_.clear();
  if (state_.evict_pinned_locked(missing, within_, Holders::kAny) == 0) return false;
  state_.first_in_line_ = this;
  state_.wake_waiters_locked();
  return true;
}

/// The kernel may let go of what a device uses. The longer that takes, the rarer the attempts, each
/// of which may write the page.
bool SwapEngine::State::RoomWait::waits_for_kernel() {
  if (state_.pages_pinned_by_kernel_locked() == 0) return false;
  const TimePoint now = state_.clock_.now();
  if (!pinned_by_kernel_since_) pinned_by_kernel_since_ = next_attempt_ = now;
  const Duration waited = now - *pinned_by_kernel_since_;
  if (waited > state_.options_.patience) return false;
  if (now < next_attempt_) return true;
  next_attempt_ = now + waited + kFirstPause;
  state_.forget_refusals_locked();
  return true;
}

/// Whether there may be frames now that were refused.
bool SwapEngine::State::RoomWait::asks_others() {
  const auto& give_back = state_.options_.others_give_back;
  if (!give_back || state_.pool_->refusal().empty() || std::exchange(has_asked_others_, true))
    return false;
  lock_.unlock();
  give_back();
  lock_.lock();
  state_.pool_->ask_again();
  return true;
}

bool SwapEngine::State::RoomWait::wait(std::size_t missing, std::size_t fresh) {
  if (asks_others()) return true;
  // What the kernel has just kept may leave at the next attempt; each page has a few.
  const bool was_refused = std::exchange(refusals_, state_.refusals_) != state_.refusals_;
  const bool is_stuck = missing > 0 && !stands_back() && !was_refused && !progress_is_possible();
  const bool is_late = is_out_of_patience();
  if ((is_stuck || is_late) && !take_from_others(missing, fresh)) {
    if (is_stuck && !waits_for_kernel()) return false;
    if (is_late && tells_of_work()) return true;
  }
  state_.kick_locked();
  state_.wait_locked(lock_, within_ != nullptr, waited_);
  return true;
}

}  // namespace spillway::swap
