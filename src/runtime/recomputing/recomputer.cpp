// What is dropped, and how it comes back.

#include "spillway/runtime/recomputing/recomputer.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <system_error>
#include <utility>

#include "recomputer_allocations.h"
#include "spillway/base/assert.h"
#include "spillway/base/end_by_signal.h"
#include "spillway/base/error.h"
#include "spillway/base/signals_blocked.h"
#include "spillway/memory/kernel_refusal.h"

namespace spillway::runtime {

namespace {

/// Ends a child that the kernel of an operator forks, once it comes back. There the locks of this
/// replay belong to a thread of the parent, and others may be held for ever. The first run had a
/// child, too.
class ChildrenEnded {
 public:
  ChildrenEnded() = default;
  ChildrenEnded(const ChildrenEnded&) = delete;
  ChildrenEnded& operator=(const ChildrenEnded&) = delete;
  ~ChildrenEnded() {
    if (::getpid() == process_) return;
    end_by_signal(SIGBUS,
                  "a forked child comes back where an operator runs again, and cannot go on "
                  "without the tensor that this was for; run with --recompute off");
  }

 private:
  const pid_t process_ = ::getpid();
};

}  // namespace

Recomputer::Recomputer(const Memory& memory, RunAsOp run_as_op)
    : memory_(memory), run_as_op_(std::move(run_as_op)) {
  const SignalsBlocked blocked;
  try {
    server_ = std::thread([this] { serve_wanted(); });
  } catch (const std::system_error&) {
    throw UnsupportedError("no thread can be started that computes tensors again: {}",
                           memory::why_no_thread());
  }
}

Recomputer::~Recomputer() {
  memory_.drops.end_drops();
  server_.join();
}

Recomputer::Allocation& Recomputer::allocation_of(StorageId storage) {
  auto& allocation = allocations_[storage];
  if (allocation == nullptr) {
    allocation = std::make_unique<Allocation>();
    allocation->storage = storage;
    // Room for all of them: storages are dropped and freed where nothing may throw.
    for (std::vector<Allocation*>* const list : {&dropped_, &postponed_})
      if (list->capacity() < allocations_.size()) list->reserve(2 * allocations_.size());
  }
  return *allocation;
}

Recomputer::Allocation* Recomputer::live(StorageId storage) {
  const auto found = allocations_.find(storage);
  return found == allocations_.end() || !found->second->is_alive ? nullptr : found->second.get();
}

RecomputationCounts Recomputer::counts() const {
  return {counts_.replays.load(), counts_.unplanned_replays.load(), counts_.refused_drops.load()};
}

bool Recomputer::drop(StorageId storage) {
  const std::lock_guard lock(mutex_);
  Allocation* const allocation = live(storage);
  const bool may_go = allocation != nullptr && !allocation->is_dropped && !allocation->is_freed &&
                      forks_ == 0 && can_compute(*allocation) && memory_.drops.drop(storage);
  if (!may_go) {
    ++counts_.refused_drops;
    return false;
  }
  allocation->is_dropped = true;
  dropped_.push_back(allocation);
  return true;
}

void Recomputer::restore(Allocation& allocation) {
  const TemporariesForgotten at_end(*this);
  run_all(calls_for({{&allocation, allocation.version}}, nullptr), {});
}

void Recomputer::restore_unplanned(Allocation& allocation) {
  const std::uint64_t before = counts_.replays;
  restore(allocation);
  counts_.unplanned_replays += counts_.replays - before;
}

/// Notes for all that these operators use which of them is the last one to do so.
std::uint64_t Recomputer::note_last_uses(std::span<KeptCall* const> calls,
                                         LastUse Allocation::*use) {
  const std::uint64_t question = ++questions_;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i] == nullptr) continue;
    for (const Ingredient& input : calls[i]->inputs) input.allocation->*use = {question, i};
  }
  return question;
}

/// Runs them, and keeps no memory of replays longer than these or the rest of the plan need it.
void Recomputer::run_all(std::span<KeptCall* const> calls, const LastUse& planned) {
  const std::uint64_t question = note_last_uses(calls, &Allocation::present_use);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    run(*calls[i]);
    std::erase_if(temporaries_, [&](Allocation* allocation) {
      const bool is_needed = allocation->present_use.is_after({question, i}) ||
                             allocation->planned_use.is_after(planned);
      if (!is_needed) allocation->temporary.reset();
      return !is_needed;
    });
  }
}

void Recomputer::run(KeptCall& kept) {
  std::vector<RangeUse> uses;
  const auto address_of = [&](StorageId storage) -> void* {
    const Allocation& allocation = *allocations_.at(storage);
    return allocation.temporary ? allocation.temporary->address
                                : memory_.storages.address_of(allocation.storage);
  };
  for (const Ingredient& input : kept.inputs) {
    RangeUse use = memory_.storages.find(address_of(input.allocation->storage));
    use.writes =
        std::find(kept.written.begin(), kept.written.end(), input.allocation) != kept.written.end();
    uses.push_back(use);
  }
  ++counts_.replays;
  std::vector<OutputMemory> made;
  const ReplayBody body{.compute =
                            [&] {
                              const ChildrenEnded at_end;
                              made = kept.call.run(address_of);
                            },
                        .take =
                            [&](swap::PinSet& pins) {
                              take_results(kept, std::move(made), pins);
                              return temporary_storages();
                            }};
  run_as_op_(kept.place, kept.call, uses, body);
}

std::vector<StorageId> Recomputer::temporary_storages() const {
  std::vector<StorageId> storages;
  for (const Allocation* const allocation : temporaries_)
    storages.push_back(memory_.storages.find(allocation->temporary->address).storage);
  return storages;
}

void Recomputer::take_results(KeptCall& kept, std::vector<OutputMemory> made, swap::PinSet& pins) {
  for (Allocation* const allocation : kept.written) {
    // Only temporaries are written to: what is there already is not recomputed.
    SPILLWAY_ASSERT(allocation->temporary);
    ++allocation->temporary_version;
    adopt_if_complete(*allocation, pins);
  }
  for (OutputMemory& replayed : made) {
    Allocation& allocation = *allocations_.at(replayed.id);
    const bool is_wanted = !allocation.is_alive || allocation.is_dropped;
    if (!is_wanted || allocation.temporary) continue;
    allocation.temporary = std::move(replayed);
    allocation.temporary_version = 0;
    temporaries_.push_back(&allocation);
    adopt_if_complete(allocation, pins);
  }
}

void Recomputer::adopt_if_complete(Allocation& allocation, swap::PinSet& pins) {
  if (!allocation.is_dropped || allocation.temporary_version != allocation.version) return;
  const RangeUse from = memory_.storages.find(allocation.temporary->address);
  while (!memory_.drops.adopt(allocation.storage, from.storage, pins))
    memory_.storages.pin(pins, {&from, 1});
  allocation.is_dropped = false;
  std::erase(dropped_, &allocation);
  std::erase(temporaries_, &allocation);
  allocation.temporary.reset();
}

void Recomputer::forget_temporaries() {
  for (Allocation* const allocation : temporaries_) allocation->temporary.reset();
  temporaries_.clear();
}

/// Leaves out what does not help: of the operators from the last one back, those that neither bring
/// a dropped storage back nor make what such ones are made of.
void Recomputer::leave_out_needless(std::vector<KeptCall*>& calls) {
  const Agenda marks(*this);
  for (Allocation* const allocation : dropped_) marks.meets(*allocation);
  for (std::size_t i = calls.size(); i-- > 0;) {
    if (calls[i] == nullptr) continue;
    bool helps = false;
    for (const std::vector<Allocation*>* const allocations :
         {&calls[i]->outputs, &calls[i]->written})
      helps = helps ||
              std::any_of(allocations->begin(), allocations->end(),
                          [&](const Allocation* allocation) { return marks.has_met(*allocation); });
    if (!helps) {
      calls[i] = nullptr;
      continue;
    }
    for (const Ingredient& input : calls[i]->inputs)
      if (!is_there(*input.allocation, input.version)) marks.meets(*input.allocation);
  }
}

/// Whether all that the operator makes is there, or is in a later version already.
bool Recomputer::is_done(const KeptCall& kept) const {
  bool is_done = true;
  kept.for_each_made([&](const Allocation& allocation) {
    const bool is_made = allocation.temporary && allocation.temporary_version >= kept.made_version;
    is_done = is_done && (allocation.is_in_use() || is_made);
  });
  return is_done;
}

void Recomputer::replay(std::span<const OpIndex> places,
                        const std::function<void(std::size_t position, bool ends)>& around) {
  const std::lock_guard lock(mutex_);
  const TemporariesForgotten at_end(*this);
  std::vector<KeptCall*> calls;
  for (const OpIndex place : places) {
    const auto found = placed_.find(place);
    calls.push_back(found == placed_.end() ? nullptr : found->second);
  }
  leave_out_needless(calls);
  const std::uint64_t plan = note_last_uses(calls, &Allocation::planned_use);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    around(i, false);
    if (calls[i] != nullptr && !is_done(*calls[i])) run_all(calls_for({}, calls[i]), {plan, i});
    around(i, true);
  }
}

}  // namespace spillway::runtime
