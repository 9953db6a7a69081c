// What is dropped, and how it comes back.

#include "spillway/runtime/recomputing/recomputer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "recomputer_lives.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/base/signals_blocked.h"
#include "spillway/memory/kernel_refusal.h"

namespace spillway::runtime {

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

Recomputer::Life& Recomputer::life_of(StorageId storage) {
  auto& life = lives_[storage];
  if (life == nullptr) {
    life = std::make_unique<Life>();
    life->storage = storage;
    // Room for all of them: storages are dropped and freed where nothing may throw.
    for (std::vector<Life*>* const list : {&dropped_, &postponed_})
      if (list->capacity() < lives_.size()) list->reserve(2 * lives_.size());
  }
  return *life;
}

Recomputer::Life* Recomputer::live(StorageId storage) {
  const auto found = lives_.find(storage);
  return found == lives_.end() || !found->second->is_alive ? nullptr : found->second.get();
}

RecomputationCounts Recomputer::counts() const {
  return {counts_.replays.load(), counts_.unplanned_replays.load(), counts_.refused_drops.load()};
}

bool Recomputer::drop(StorageId storage) {
  const std::lock_guard lock(mutex_);
  Life* const life = live(storage);
  const bool may_go = life != nullptr && !life->is_dropped && !life->is_freed && forks_ == 0 &&
                      can_compute(*life) && memory_.drops.drop(storage);
  if (!may_go) {
    ++counts_.refused_drops;
    return false;
  }
  life->is_dropped = true;
  dropped_.push_back(life);
  return true;
}

void Recomputer::restore(Life& life) {
  const TemporariesForgotten at_end(*this);
  run_all(records_for({{&life, life.version}}, nullptr), {});
}

void Recomputer::restore_unplanned(Life& life) {
  const std::uint64_t before = counts_.replays;
  restore(life);
  counts_.unplanned_replays += counts_.replays - before;
}

/// Notes for all that these operators use which of them is the last one to do so.
std::uint64_t Recomputer::note_last_uses(std::span<Record* const> records, LastUse Life::*use) {
  const std::uint64_t question = ++questions_;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i] == nullptr) continue;
    for (const Ingredient& input : records[i]->inputs) input.life->*use = {question, i};
  }
  return question;
}

/// Runs them, and keeps no memory of replays longer than these or the rest of the plan need it.
void Recomputer::run_all(std::span<Record* const> records, const LastUse& planned) {
  const std::uint64_t question = note_last_uses(records, &Life::present_use);
  for (std::size_t i = 0; i < records.size(); ++i) {
    run(*records[i]);
    std::erase_if(temporaries_, [&](Life* life) {
      const bool is_needed =
          life->present_use.is_after({question, i}) || life->planned_use.is_after(planned);
      if (!is_needed) life->temporary.reset();
      return !is_needed;
    });
  }
}

void Recomputer::run(Record& record) {
  std::vector<RangeUse> uses;
  const auto address_of = [&](StorageId storage) -> void* {
    const Life& life = *lives_.at(storage);
    return life.temporary ? life.temporary->address : memory_.storages.address_of(life.storage);
  };
  for (const Ingredient& input : record.inputs) {
    RangeUse use = memory_.storages.find(address_of(input.life->storage));
    use.writes =
        std::find(record.written.begin(), record.written.end(), input.life) != record.written.end();
    uses.push_back(use);
  }
  ++counts_.replays;
  run_as_op_(record.place, *record.op, uses, [&](swap::PinSet& pins) {
    take_results(record, record.op->replay(address_of), pins);
  });
}

void Recomputer::take_results(Record& record, std::vector<ReplayedStorage> made,
                              swap::PinSet& pins) {
  for (Life* const life : record.written) {
    // Only temporaries are written to: what is there already is not computed again.
    SPILLWAY_ASSERT(life->temporary);
    ++life->temporary_version;
    adopt_if_complete(*life, pins);
  }
  for (ReplayedStorage& replayed : made) {
    Life& life = *lives_.at(replayed.id);
    const bool is_wanted = !life.is_alive || life.is_dropped;
    if (!is_wanted || life.temporary) continue;
    life.temporary = std::move(replayed);
    life.temporary_version = 0;
    temporaries_.push_back(&life);
    adopt_if_complete(life, pins);
  }
}

void Recomputer::adopt_if_complete(Life& life, swap::PinSet& pins) {
  if (!life.is_dropped || life.temporary_version != life.version) return;
  const RangeUse from = memory_.storages.find(life.temporary->address);
  while (!memory_.drops.adopt(life.storage, from.storage, pins))
    memory_.storages.pin(pins, {&from, 1});
  life.is_dropped = false;
  std::erase(dropped_, &life);
  std::erase(temporaries_, &life);
  life.temporary.reset();
}

void Recomputer::forget_temporaries() {
  for (Life* const life : temporaries_) life->temporary.reset();
  temporaries_.clear();
}

/// Leaves out what does not help: of the operators from the last one back, those that neither bring
/// a dropped storage back nor make what such ones are made of.
void Recomputer::leave_out_needless(std::vector<Record*>& records) {
  const Agenda marks(*this);
  for (Life* const life : dropped_) marks.meets(*life);
  for (std::size_t i = records.size(); i-- > 0;) {
    if (records[i] == nullptr) continue;
    bool helps = false;
    for (const std::vector<Life*>* const lives : {&records[i]->outputs, &records[i]->written})
      helps = helps || std::any_of(lives->begin(), lives->end(),
                                   [&](const Life* life) { return marks.has_met(*life); });
    if (!helps) {
      records[i] = nullptr;
      continue;
    }
    for (const Ingredient& input : records[i]->inputs)
      if (!is_there(*input.life, input.version)) marks.meets(*input.life);
  }
}

/// Whether all that the operator makes is there, or is in a later version already.
bool Recomputer::is_done(const Record& record) const {
  bool is_done = true;
  record.for_each_made([&](const Life& life) {
    const bool is_made = life.temporary && life.temporary_version >= record.made_version;
    is_done = is_done && (life.is_in_use() || is_made);
  });
  return is_done;
}

void Recomputer::replay(std::span<const OpIndex> places,
                        const std::function<void(std::size_t position, bool ends)>& around) {
  const std::lock_guard lock(mutex_);
  const TemporariesForgotten at_end(*this);
  std::vector<Record*> records;
  for (const OpIndex place : places) {
    const auto found = placed_.find(place);
    records.push_back(found == placed_.end() ? nullptr : found->second);
  }
  leave_out_needless(records);
  const std::uint64_t plan = note_last_uses(records, &Life::planned_use);
  for (std::size_t i = 0; i < records.size(); ++i) {
    around(i, false);
    if (records[i] != nullptr && !is_done(*records[i]))
      run_all(records_for({}, records[i]), {plan, i});
    around(i, true);
  }
}

}  // namespace spillway::runtime
