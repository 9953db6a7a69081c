// What is made of what: which storages could be recomputed, and what has to run for that.

#include <algorithm>
#include <utility>

#include "recomputer_allocations.h"
#include "spillway/base/error.h"

namespace spillway::runtime {

void Recomputer::keep(OpIndex place, RecordedCall call) {
  const std::lock_guard lock(mutex_);
  active_.store(true, std::memory_order_relaxed);
  const std::uint64_t moment = kept_.size();
  KeptCall& kept =
      *kept_.emplace_back(new KeptCall{.call = std::move(call), .place = place, .moment = moment});
  placed_[place] = &kept;
  for (const recompute::StorageUse& use : kept.call.inputs) {
    Allocation& allocation = allocation_of(use.id);
    if (use.written) kept.written.push_back(&allocation);
    kept.inputs.push_back({&allocation, allocation.version});
    allocation.readers.push_back({&kept, allocation.version});
  }
  for (const recompute::StorageMade& made : kept.call.outputs)
    kept.outputs.push_back(&allocation_of(made.id));
  // What changes one storage and makes others, or changes several, cannot run again for one alone.
  const bool is_usable = kept.written.empty() || (kept.written.size() == 1 && kept.outputs.empty());
  for (Allocation* const allocation : kept.written) {
    ++allocation->version;
    kept.made_version = allocation->version;
    if (is_usable && allocation->writers.size() == allocation->version)
      allocation->writers.push_back(&kept);
  }
  for (Allocation* const allocation : kept.outputs)
    if (is_usable && allocation->version == 0 && allocation->writers.empty())
      allocation->writers.push_back(&kept);
  for (const Ingredient& input : kept.inputs) guard(*input.allocation);
  for (Allocation* const allocation : kept.outputs) guard(*allocation);
}

/// From here on the recomputer hears of a write past the operators before it happens. Where that is
/// not possible, the storage may be in another version at any time.
void Recomputer::guard(Allocation& allocation) {
  if (!memory_.guards.guard(allocation.storage)) ++allocation.version;
}

bool Recomputer::is_there(const Allocation& allocation, std::uint32_t version) const {
  if (allocation.temporary && allocation.temporary_version == version) return true;
  return allocation.is_in_use() && allocation.version == version;
}

/// Whether the allocation could be computed if it were gone: all that it is made of is there, or
/// can be made itself. Memory of replays does not count, as it will be gone by then.
bool Recomputer::can_compute(Allocation& gone) noexcept {
  Agenda agenda(*this);
  const auto is_possible = [&](Allocation& allocation, std::uint32_t version) {
    // Its operators would overwrite what is in use.
    if (&allocation != &gone && allocation.is_in_use()) return allocation.version == version;
    if (allocation.writers.size() <= version) return false;
    agenda.meets(allocation);
    allocation.reached = std::max(allocation.reached, version + 1);
    if (allocation.looked_into < allocation.reached) agenda.add(allocation);
    return true;
  };
  if (!is_possible(gone, gone.version)) return false;
  while (Allocation* const allocation = agenda.take()) {
    for (; allocation->looked_into < allocation->reached; ++allocation->looked_into) {
      // What it is written from is its own earlier version, which the same operators make.
      for (const Ingredient& input : allocation->writers[allocation->looked_into]->inputs)
        if (input.allocation != allocation && !is_possible(*input.allocation, input.version))
          return false;
    }
  }
  return true;
}

bool Recomputer::is_needed(Allocation& ended) noexcept {
  bool has_dependents = false;
  for_each_dependent(ended, ended.version, ended.version,
                     [&](const Allocation&) { has_dependents = true; });
  return has_dependents && !can_compute(ended);
}

/// What has to run so that `wanted` are there, or `last` can run, which then is one of them: in the
/// order of the first run, in which each operator finds the versions that it found then. With it
/// comes what could not be computed afterwards: what is made of an earlier version of something
/// that is dropped and comes back.
std::vector<Recomputer::KeptCall*> Recomputer::calls_for(std::vector<Ingredient> wanted,
                                                         KeptCall* last) {
  std::vector<KeptCall*> found;
  const std::vector<Ingredient> asked = wanted;
  const std::uint64_t question = ++questions_;
  const auto take = [&](KeptCall& kept, const Allocation* made) {
    if (std::exchange(kept.question, question) == question) return;
    found.push_back(&kept);
    for (const Ingredient& input : kept.inputs)
      if (input.allocation != made) wanted.push_back(input);
  };
  if (last != nullptr) take(*last, nullptr);
  for (std::size_t looked_into = 0;;) {
    while (!wanted.empty()) {
      const auto [allocation, version] = wanted.back();
      wanted.pop_back();
      if (is_there(*allocation, version)) continue;
      if (allocation->temporary && allocation->temporary_version > version) {
        forget_temporaries();
        return calls_for(asked, last);
      }
      if (allocation->is_in_use() || allocation->writers.size() <= version)
        throw RecomputeError("{}, of which it is computed, has changed since{}",
                             allocation->writers.empty()
                                 ? "a tensor from before the recorded operators"
                                 : message("what {} made", allocation->writers.back()->call.name()),
                             allocation->failure);
      // A temporary may hold an earlier version: then only later writers are missing.
      for (std::uint32_t i = allocation->temporary ? allocation->temporary_version + 1 : 0;
           i <= version; ++i)
        take(*allocation->writers[i], allocation);
    }
    if (looked_into == found.size()) break;
    const KeptCall& kept = *found[looked_into++];
    if (kept.made_version == 0) continue;
    kept.for_each_made([&](Allocation& allocation) {
      if (!allocation.is_dropped || allocation.version != kept.made_version) return;
      for_each_dependent(allocation, 0, allocation.version - 1, [&](Allocation& other) {
        wanted.push_back({&other, other.version});
      });
    });
  }
  std::sort(found.begin(), found.end(),
            [](const KeptCall* a, const KeptCall* b) { return a->moment < b->moment; });
  return found;
}

}  // namespace spillway::runtime
