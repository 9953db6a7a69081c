// What is done before ingredients change or end: by operators, by hand, at a fork, with the step.

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "recomputer_allocations.h"
#include "spillway/base/error.h"

namespace spillway::runtime {

void Recomputer::restore_dependents(Allocation& ingredient) {
  std::vector<Allocation*> dependents;
  for_each_dependent(ingredient, ingredient.version, ingredient.version,
                     [&](Allocation& allocation) { dependents.push_back(&allocation); });
  std::exception_ptr failure;
  for (Allocation* const allocation : dependents) {
    if (!allocation->is_dropped) continue;  // It has come back with another one.
    try {
      restore_unplanned(*allocation);
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();  // The others may still come.
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

void Recomputer::note_write(Allocation& allocation, bool is_recorded) {
  if (!dropped_.empty()) restore_dependents(allocation);
  if (!is_recorded)
    ++allocation.version;  // The gap in its writers tells that it cannot be computed.
}

void Recomputer::before_op(std::span<const RangeUse> uses, bool is_recorded) {
  const std::lock_guard lock(mutex_);
  for (const RangeUse& use : uses) {
    Allocation* const allocation = live(use.storage);
    if (allocation == nullptr) continue;
    if (allocation->is_dropped) restore_unplanned(*allocation);  // May bring others back, too.
    if (use.writes) note_write(*allocation, is_recorded);
  }
}

void Recomputer::note_unrecorded_writes(std::span<const StorageId> written) {
  const std::lock_guard lock(mutex_);
  for (const StorageId storage : written) {
    if (Allocation* const allocation = live(storage)) ++allocation->version;
  }
}

bool Recomputer::may_end(StorageId storage, const device::Event& until) noexcept {
  const std::lock_guard lock(mutex_);
  Allocation* const allocation = live(storage);
  if (allocation == nullptr) return true;
  if (allocation->is_dropped) {
    allocation->is_dropped = false;
    std::erase(dropped_, allocation);
  } else if (!dropped_.empty() && is_needed(*allocation)) {
    allocation->is_freed = true;
    allocation->freed_until = until;
    postponed_.push_back(allocation);
    return false;
  }
  allocation->is_alive = false;
  return true;
}

std::vector<Recomputer::Ended> Recomputer::take_ended() {
  const std::lock_guard lock(mutex_);
  while (!postponed_.empty()) {
    Allocation* const allocation = postponed_.back();
    restore_dependents(*allocation);  // Where it throws, none that is done is done again later.
    allocation->is_alive = false;
    ended_.push_back({allocation->storage, allocation->freed_until});
    postponed_.pop_back();
  }
  return std::exchange(ended_, {});
}

void Recomputer::restore_all() {
  const std::lock_guard lock(mutex_);
  while (!dropped_.empty()) restore_unplanned(*dropped_.back());
}

std::string Recomputer::begin_fork(bool may_replay) {
  const std::lock_guard lock(mutex_);
  ++forks_;
  std::string failure;
  // From the last one back, as others come back with it; each by itself, since one may fail.
  for (std::size_t i = dropped_.size(); may_replay && i > 0; i = std::min(i - 1, dropped_.size())) {
    try {
      restore_unplanned(*dropped_[i - 1]);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  if (dropped_.empty()) return {};
  return message("{} that had to be recomputed cannot come back before a fork: {}",
                 dropped_.size() == 1 ? "a tensor" : message("{} tensors", dropped_.size()),
                 may_replay ? failure : "the thread that forks runs an operator");
}

void Recomputer::end_fork() {
  const std::lock_guard lock(mutex_);
  --forks_;
}

void Recomputer::end_step() {
  const std::lock_guard lock(mutex_);
  restore_all();
  for (; !postponed_.empty(); postponed_.pop_back())
    ended_.push_back({postponed_.back()->storage, postponed_.back()->freed_until});
  placed_.clear();
  kept_.clear();
  allocations_.clear();
  active_.store(!ended_.empty(), std::memory_order_relaxed);
}

/// Somebody waits to write to a storage past the operators: that is like an operator which nobody
/// has recorded. It cannot be refused, so what does not come back now is lost.
void Recomputer::allow_write(StorageId storage) {
  if (Allocation* const allocation = live(storage)) {
    try {
      note_write(*allocation, false);
    } catch (const std::exception& error) {
      allocation->failure = message(" ({})", error.what());
      ++allocation->version;
    }
  }
  memory_.guards.unguard(storage);
}

/// Storages that are touched by whoever knows nothing of drops and records.
void Recomputer::serve_wanted() {
  ::pthread_setname_np(::pthread_self(), "spillway-recomp");
  while (true) {
    const StorageId wanted = memory_.drops.wait_for_wanted();
    if (!wanted.is_some()) return;
    const std::lock_guard lock(mutex_);
    Allocation* const allocation = live(wanted);
    try {
      if (allocation != nullptr && allocation->is_dropped) restore_unplanned(*allocation);
      if (memory_.guards.is_write_awaited(wanted)) allow_write(wanted);
    } catch (const std::exception& error) {
      memory_.drops.give_up(wanted, error.what());
    }
  }
}

}  // namespace spillway::runtime
