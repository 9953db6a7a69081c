#include "spillway/swap/swap_engine.h"

#include <system_error>
#include <utility>

#include "room_wait.h"
#include "spillway/base/assert.h"
#include "spillway/base/signals_blocked.h"
#include "spillway/memory/kernel_refusal.h"
#include "way_to_host.h"

namespace spillway::swap {

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

std::optional<SwapEngine::Allocation> SwapEngine::reuse(Bytes size, PinSet& within,
                                                        const device::Event& so_far) {
  const void* const line = so_far.state() == nullptr ? nullptr : so_far.state()->line();
  if (line == nullptr) return std::nullopt;
  const auto made = state_->reuse(size, within, line);
  if (made) within.engine_ = this;
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
