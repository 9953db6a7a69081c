#include "spillway/swap/swap_engine.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "room_wait.h"
#include "spillway/base/assert.h"
#include "spillway/base/signals_blocked.h"
#include "spillway/memory/kernel_refusal.h"
#include "way_to_host.h"

namespace spillway::swap {

using memory::PageIndex;

namespace {

// Small blocks are granted to the heap in steps of a page, so that most are accounted without a
// lock. So many steps are granted ahead.
constexpr std::uint64_t kSmallStepsAhead = 8;
// What small blocks leave to storages: an access may span two pages, and without a frame the thread
// that touches one would wait for ever.
constexpr std::size_t kLeastFrames = 2;

constexpr std::chrono::milliseconds kWaitMax(20);
constexpr std::chrono::milliseconds kLateWaitMax(1);

thread_local Duration waited_here{0};

}  // namespace

SwapEngine::State::State(const SwapEngineOptions& options,
                         std::unique_ptr<memory::PageMemory> memory,
                         std::unique_ptr<SpillStore> store, const Clock& clock)
    : StorageTable(options.arena_size / memory->page_size(), memory->page_size()),
      options_(options),
      store_(std::move(store)),
      descriptors_(store_->descriptors() ? store_->descriptors() : memory::make_own_descriptors()),
      clock_(clock),
      memory_(std::move(memory)),
      access_(memory_->access_control()),
      frames_in_use_(memory_->frames_in_use()),
      budget_pages_(options.budget / page_size_) {
  if (budget_pages_ == 0)
    throw ConfigError("budget of {} is below the page size of {}", options.budget, page_size_);
  if (page_size_ > store_->extent_size() || page_size_.count() % kTransferAlignment > 0)
    throw ConfigError("pages of {} do not fit into extents of {}", page_size_,
                      store_->extent_size());
  if (store_->device() != memory_->device())
    throw ConfigError("the spill store moves memory of {}, and the pages are of {}",
                      to_string(store_->device()), to_string(memory_->device()));
  memory_->reserve(arena_pages_, budget_pages_, *this);
  addresses_.place(address_of(0));
  pool_ = std::make_unique<memory::FramePool>(*memory_, budget_pages_, budget_pages_);
  free_transfers_ = store_->queue_depth();
  try {
    // Drivers of devices have files of their own, which are open in the program's table.
    if (memory_->device().is_host()) {
      transfer_thread_ = descriptors_->start_thread([this] { run_transfers(); });
    } else {
      const SignalsBlocked blocked;
      transfer_thread_ = std::thread([this] { run_transfers(); });
    }
  } catch (const std::system_error&) {
    throw UnsupportedError("no thread can be started that moves pages: {}",
                           memory::why_no_thread());
  }
}

SwapEngine::State::~State() {
  {
    Lock lock(mutex_);
    stopping_ = true;
    kick_locked();
  }
  store_->wake();
  transfer_thread_.join();
  late_uses_.wait_for_all();  // They are in our memory.
  // Its thread may still bring a late report, which looks at the pages.
  memory_.reset();
}

/// Addresses for `count` pages that the kernel lets us use. Throws where there are none, with
/// nothing changed.
PageIndex SwapEngine::State::take_addresses_locked(std::uint32_t count, Bytes size) {
  const auto first = arena_.allocate(count);
  if (!first)
    throw AddressesError("no {} of addresses in one piece are left of the {} that are reserved "
                         "for tensors, of which {} are in use{}",
                         size, options_.arena_size, page_size_ * arena_.used_pages(),
                         options_.arena_reason);
  try {
    memory_->prepare(*first, count);
  } catch (...) {
    arena_.release(*first, count);
    throw;
  }
  return *first;
}

StorageId SwapEngine::State::new_range_locked(PageIndex first, std::uint32_t pages, Bytes size) {
  Range& range = new_range(first, pages, size);
  range.last_touch = ++touch_clock_;
  counts_.live += page_size_ * pages;
  counts_.live_peak = std::max(counts_.live_peak, counts_.live + Bytes(small_bytes_.load()));
  return range.id;
}

void SwapEngine::State::note_counted_locked() {
  const Bytes counted = page_size_ * pool_->existing_frames() + Bytes(small_granted_.load());
  SPILLWAY_ASSERT(counted <= options_.budget);
  counts_.counted_peak = std::max(counts_.counted_peak, counted);
  latest_peak_ = std::max(latest_peak_, resident_locked());
}

void SwapEngine::State::map_locked(PageIndex index, memory::SlotId slot, memory::Access allowed) {
  memory_->map(index, slot, allowed);
  note_mapped_locked(index, slot, allowed);
}

/// With whatever bytes.
void SwapEngine::State::map_fresh_locked(PageIndex index, memory::SlotId slot) {
  memory_->map_fresh(index, slot);
  note_mapped_locked(index, slot, memory::Access::kWrite);
}

void SwapEngine::State::note_mapped_locked(PageIndex index, memory::SlotId slot,
                                           memory::Access allowed) {
  pool_->put_empty_slot(slot);
  note_resident_locked(index, allowed);
}

void SwapEngine::State::note_resident_locked(PageIndex index, memory::Access allowed) {
  Page& page = pages_.get()[index];
  page.state = PageState::kResident;
  page.arrival = ++arrivals_;
  page.write_protected = allowed == memory::Access::kRead;
  end_faults_locked(index);
}

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

SwapEngine::Allocation SwapEngine::State::allocate(Bytes size, PinSet* within) {
  const std::size_t wanted = pages_for(size);
  // Sizes that no machine has must be refused as they are, not in 32 bits.
  const auto count = static_cast<std::uint32_t>(std::min(wanted, budget_pages_ + 1));
  std::vector<memory::SlotId> frames;
  frames.reserve(count);
  Lock lock(mutex_);
  if (within != nullptr) enter_locked(*within);
  try {
    if (wanted > budget_pages_) refuse_locked(wanted, within);
    acquire_frames_locked(lock, frames, count, within);
  } catch (...) {
    if (within != nullptr && within->engine_ == nullptr) exit_locked(*within);
    throw;
  }
  PageIndex first = 0;
  try {
    first = take_addresses_locked(count, size);
  } catch (...) {
    for (const memory::SlotId slot : frames) pool_->put_frame(slot);
    if (within != nullptr && within->engine_ == nullptr) exit_locked(*within);
    throw;
  }
  const StorageId id = new_range_locked(first, count, size);
  for (std::uint32_t i = 0; i < count; ++i) {
    map_fresh_locked(first + i, frames[i]);
    pages_.get()[first + i].dirty = true;
  }
  if (within != nullptr) {
    // The room that was kept free for this operator is taken now.
    fetch_reserve_ -= std::min(fetch_reserve_, count);
    range_of(id).pins = 1;
    within->pins_.push_back({id, 0, 0});
  }
  return {address_of(first), id};
}

SwapEngine::Allocation SwapEngine::State::allocate_unfilled(Bytes size, PinSet* within) {
  // Sizes that no machine has must be refused as they are, not in 32 bits.
  const auto count = static_cast<std::uint32_t>(std::min(pages_for(size), arena_pages_ + 1));
  Lock lock(mutex_);
  const PageIndex first = take_addresses_locked(count, size);
  const StorageId id = new_range_locked(first, count, size);
  if (pool_->available_frames() >= count + frames_wanted_ && fault_reads_.empty() &&
      pool_->provide(count)) {
    for (std::uint32_t i = 0; i < count; ++i) give_fresh_frame_locked(first + i);
  } else {
    pressure_.store(true, std::memory_order_relaxed);  // Operators have to ask for their pages.
  }
  if (within != nullptr) {
    enter_locked(*within);
    range_of(id).pins = 1;
    within->pins_.push_back({id, 0, 0});
  }
  return {address_of(first), id};
}

void SwapEngine::State::release_page_locked(PageIndex index) {
  Page& page = pages_.get()[index];
  end_faults_locked(index);
  if (page.state == PageState::kWriteQueued) cancel_write_locked(page);
  if (page.moved_on) frames_in_use_->end_move(index);
  page.moved_on = false;
  switch (page.state) {
    case PageState::kOut:
    case PageState::kReadQueued: break;
    case PageState::kReading:
    case PageState::kOnHost:
    case PageState::kWriting: return;
    case PageState::kResident:
    case PageState::kWriteQueued: leave_locked(index); break;
  }
  page.state = PageState::kOut;
  drop_extent_locked(page);
}

void SwapEngine::State::release_pages_locked(Range& range) {
  for (std::uint32_t i = 0; i < range.pages; ++i) release_page_locked(range.first + i);
}

void SwapEngine::State::release(StorageId id, const device::Event& until) {
  Lock lock(mutex_);
  Range& range = range_of(id);
  SPILLWAY_ASSERT(range.is_live && !range.is_dying);
  end_some_late_uses_locked();
  if (!has_ended_by_now_locked(until)) {
    ++range.late_uses;
    late_uses_.add(until, {{id, 0, 0}});
  }
  range.is_dying = true;
  ++faults_.releases;
  range.pins = 0;
  range.partial_pins = 0;
  counts_.live -= page_size_ * range.pages;
  addresses_.forget(range.first, range.pages);
  if (range.is_dropped || range.is_write_awaited) std::erase(drops_.wanted, id);
  if (range.late_uses == 0) release_pages_locked(range);
  if (range.late_uses == 0 && range.in_flight == 0) end_range(range);
  wake_waiters_locked();
  if (!fetches_.empty()) kick_locked();
}

void SwapEngine::State::account_small(Bytes size, PinSet* within) {
  const std::uint64_t now = small_bytes_.fetch_add(size.count()) + size.count();
  if (now <= small_granted_.load(std::memory_order_relaxed)) return;
  Lock lock(mutex_);
  std::vector<memory::SlotId> frames;
  try {
    while (small_bytes_.load() > small_granted_.load()) {
      if (pool_->limit() <= kLeastFrames) refuse_locked(kLeastFrames + 1, within);
      if (pool_->existing_frames() >= pool_->limit()) {
        // The frame is taken and destroyed at once: its bytes now belong to the heap.
        frames.clear();
        const bool holds_pins = within != nullptr && within->engine_ != nullptr;
        acquire_frames_locked(lock, frames, 1, holds_pins ? within : nullptr);
        pool_->put_frame(frames.front());
      }
      pool_->set_limit(pool_->limit() - 1);
      small_granted_.fetch_add(page_size_.count());
    }
  } catch (...) {
    small_bytes_.fetch_sub(size.count());
    throw;
  }
  counts_.small_peak = std::max(counts_.small_peak, Bytes(small_granted_.load()));
  counts_.live_peak = std::max(counts_.live_peak, counts_.live + Bytes(small_bytes_.load()));
  note_counted_locked();
}

void SwapEngine::State::release_small(Bytes size) noexcept {
  const std::uint64_t slack = kSmallStepsAhead * page_size_.count();
  const std::uint64_t now = small_bytes_.fetch_sub(size.count()) - size.count();
  if (now + 2 * slack > small_granted_.load(std::memory_order_relaxed)) return;
  Lock lock(mutex_);
  while (small_bytes_.load() + slack < small_granted_.load()) {
    small_granted_.fetch_sub(page_size_.count());
    pool_->set_limit(pool_->limit() + 1);
  }
  wake_waiters_locked();
}

std::uint32_t SwapEngine::State::storage_pages() const noexcept {
  const std::uint64_t small = small_granted_.load(std::memory_order_relaxed) / page_size_.count();
  return static_cast<std::uint32_t>(budget_pages_ - std::min(small, budget_pages_));
}

SwapStatistics SwapEngine::State::statistics() {
  const StoreReport report = store_->report();
  Lock lock(mutex_);
  SwapStatistics now = counts_;
  now.counted = page_size_ * pool_->existing_frames() + Bytes(small_granted_.load());
  now.live = counts_.live + Bytes(small_bytes_.load());
  now.store = report;
  return now;
}

Bytes SwapEngine::State::resident_locked() const {
  return page_size_ * (pool_->existing_frames() - pool_->free_frames()) +
         Bytes(small_granted_.load());
}

Bytes SwapEngine::State::take_peak() {
  Lock lock(mutex_);
  return std::exchange(latest_peak_, resident_locked());
}

void SwapEngine::stop_moving_ahead() { state_->stop_moving_ahead(); }

PinSet::~PinSet() {
  if (engine_ != nullptr) engine_->unpin(*this);
}

SwapEngine::SwapEngine(const SwapEngineOptions& options, std::unique_ptr<memory::PageMemory> memory,
                       std::unique_ptr<SpillStore> store, const Clock& clock)
    : state_(std::make_unique<State>(options, std::move(memory), std::move(store), clock)) {}

SwapEngine::~SwapEngine() = default;

SwapEngine::Allocation SwapEngine::allocate(Bytes size, PinSet* within) {
  const Allocation made = state_->allocate(size, within);
  if (within != nullptr) within->engine_ = this;
  return made;
}

SwapEngine::Allocation SwapEngine::allocate_unfilled(Bytes size, PinSet* within) {
  const Allocation made = state_->allocate_unfilled(size, within);
  if (within != nullptr) within->engine_ = this;
  return made;
}

void SwapEngine::release(StorageId range, const device::Event& until) {
  if (!state_->off_.load(std::memory_order_relaxed)) state_->release(range, until);
}

Bytes SwapEngine::page_size() const noexcept { return state_->page_size(); }

RangeUse SwapEngine::find(const void* address) const noexcept {
  return state_->addresses_.find(address);
}

RangeUse SwapEngine::find(const void* address, Bytes size) const noexcept {
  return state_->addresses_.find(address, size);
}

bool SwapEngine::is_under_pressure() const noexcept {
  return state_->pressure_.load(std::memory_order_relaxed);
}

void SwapEngine::pin(PinSet& set, std::span<const RangeUse> uses, MissingPages* missing,
                     const ResidencyOrders* orders) {
  if (state_->off_.load(std::memory_order_relaxed)) return;
  state_->pin(set, uses, missing, orders);
  set.engine_ = this;
}

void SwapEngine::unpin(PinSet& set, const ResidencyOrders* orders, const device::Event& until) {
  if (set.engine_ == nullptr) {
    if (orders != nullptr) apply(*orders);
    return;
  }
  set.engine_ = nullptr;
  if (!state_->off_.load(std::memory_order_relaxed)) state_->unpin(set, orders, until);
}

Bytes SwapEngine::make_room(Bytes wanted) {
  return state_->off_.load(std::memory_order_relaxed) ? Bytes() : state_->make_room(wanted);
}

void SwapEngine::page_through(PinSet& set) {
  if (state_->off_.load(std::memory_order_relaxed)) return;
  state_->page_through(set);
  set.engine_ = this;
}

void SwapEngine::account_small(Bytes size, PinSet* within) {
  if (!state_->off_.load(std::memory_order_relaxed)) state_->account_small(size, within);
}

void SwapEngine::release_small(Bytes size) noexcept {
  if (!state_->off_.load(std::memory_order_relaxed)) state_->release_small(size);
}

void SwapEngine::apply(const ResidencyOrders& orders) {
  // The mapper of a forked child would move the pages of its parent.
  if (state_->off_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(state_->mutex_);
  state_->apply_locked(orders);
}

std::uint32_t SwapEngine::storage_pages() const noexcept { return state_->storage_pages(); }

bool SwapEngine::drop(StorageId range) {
  return !state_->off_.load(std::memory_order_relaxed) && state_->drop(range);
}

bool SwapEngine::is_dropped(StorageId range) const {
  std::lock_guard lock(state_->mutex_);
  return state_->range_of(range).is_dropped;
}

std::byte* SwapEngine::address_of(StorageId range) const {
  std::lock_guard lock(state_->mutex_);
  return state_->address_of(state_->range_of(range).first);
}

bool SwapEngine::adopt(StorageId dropped, StorageId from, PinSet& within) {
  SPILLWAY_ASSERT(within.engine_ == this);
  return state_->adopt(dropped, from, within);
}

HostHold::~HostHold() {
  if (engine_ != nullptr) engine_->let_go_on_host(*this);
}

bool SwapEngine::hold_on_host(HostHold& hold, std::span<const HostUse> uses) {
  SPILLWAY_ASSERT(hold.engine_ == nullptr);
  if (state_->off_.load(std::memory_order_relaxed) || !State::WayToHost(*state_).hold(hold, uses))
    return false;
  hold.engine_ = this;
  return true;
}

void SwapEngine::let_go_on_host(HostHold& hold) {
  if (hold.engine_ == nullptr) return;
  hold.engine_ = nullptr;
  if (!state_->off_.load(std::memory_order_relaxed)) State::WayToHost(*state_).let_go(hold);
}

bool SwapEngine::guard(StorageId range) {
  return !state_->off_.load(std::memory_order_relaxed) && state_->guard(range);
}

bool SwapEngine::is_write_awaited(StorageId range) const {
  std::lock_guard lock(state_->mutex_);
  return state_->range_of(range).is_write_awaited;
}

void SwapEngine::unguard(StorageId range) {
  if (state_->off_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(state_->mutex_);
  // It may have ended since somebody waited to write to it.
  if (!state_->has_ended(range)) state_->unguard_locked(state_->range_of(range));
}

StorageId SwapEngine::wait_for_wanted() { return state_->wait_for_wanted(); }

void SwapEngine::give_up(StorageId dropped, const std::string& reason) {
  state_->give_up(dropped, reason);
}

void SwapEngine::end_drops() { state_->end_drops(); }

SwapStatistics SwapEngine::statistics() const { return state_->statistics(); }

Duration SwapEngine::waited_by_this_thread() { return waited_here; }

Bytes SwapEngine::resident() const {
  std::lock_guard lock(state_->mutex_);
  return state_->resident_locked();
}

Bytes SwapEngine::take_peak() { return state_->take_peak(); }

bool SwapEngine::is_inherited() const { return state_->is_inherited(); }

void SwapEngine::before_fork() {
  state_->mutex_.lock();
  state_->begin_fork_locked();
}

void SwapEngine::after_fork_in_parent() {
  state_->leave_fork_in_parent();
  state_->mutex_.unlock();
}

void SwapEngine::after_fork_in_child() {
  state_->enter_child();
  state_->mutex_.unlock();
}

}  // namespace spillway::swap
