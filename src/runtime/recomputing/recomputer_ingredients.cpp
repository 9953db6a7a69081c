// What is made of what: which storages could be computed again, and what has to run for that.

#include <algorithm>
#include <utility>

#include "recomputer_lives.h"
#include "spillway/base/error.h"

namespace spillway::runtime {

void Recomputer::keep(OpIndex place, std::unique_ptr<RecordedOp> op) {
  const std::lock_guard lock(mutex_);
  active_.store(true, std::memory_order_relaxed);
  Record& record = *records_.emplace_back(std::make_unique<Record>());
  record.op = std::move(op);
  record.place = place;
  record.moment = records_.size();
  placed_[place] = &record;
  for (const StorageId storage : record.op->inputs()) {
    Life& life = life_of(storage);
    record.inputs.push_back({&life, life.version});
    life.readers.push_back({&record, life.version});
  }
  for (const StorageId storage : record.op->written()) record.written.push_back(&life_of(storage));
  for (const StorageId storage : record.op->outputs()) record.outputs.push_back(&life_of(storage));
  // What changes one storage and makes others, or changes several, cannot run again for one alone.
  const bool is_usable =
      record.written.empty() || (record.written.size() == 1 && record.outputs.empty());
  for (Life* const life : record.written) {
    ++life->version;
    record.made_version = life->version;
    if (is_usable && life->writers.size() == life->version) life->writers.push_back(&record);
  }
  for (Life* const life : record.outputs)
    if (is_usable && life->version == 0 && life->writers.empty()) life->writers.push_back(&record);
  for (const Ingredient& input : record.inputs) guard(*input.life);
  for (Life* const life : record.outputs) guard(*life);
}

/// From here on the recomputer hears of a write past the operators before it happens. Where that is
/// not possible, the storage may be in another version at any time.
void Recomputer::guard(Life& life) {
  if (!memory_.guards.guard(life.storage)) ++life.version;
}

bool Recomputer::is_there(const Life& life, std::uint32_t version) const {
  if (life.temporary && life.temporary_version == version) return true;
  return life.is_in_use() && life.version == version;
}

/// Whether the life could be computed if it were gone: all that it is made of is there, or can be
/// made itself. Memory of replays does not count, as it will be gone by then.
bool Recomputer::can_compute(Life& gone) noexcept {
  Agenda agenda(*this);
  const auto is_possible = [&](Life& life, std::uint32_t version) {
    // Its operators would overwrite what is in use.
    if (&life != &gone && life.is_in_use()) return life.version == version;
    if (life.writers.size() <= version) return false;
    agenda.meets(life);
    life.reached = std::max(life.reached, version + 1);
    if (life.looked_into < life.reached) agenda.add(life);
    return true;
  };
  if (!is_possible(gone, gone.version)) return false;
  while (Life* const life = agenda.take()) {
    for (; life->looked_into < life->reached; ++life->looked_into) {
      // What it is written from is its own earlier version, which the same operators make.
      for (const Ingredient& input : life->writers[life->looked_into]->inputs)
        if (input.life != life && !is_possible(*input.life, input.version)) return false;
    }
  }
  return true;
}

bool Recomputer::is_needed(Life& ended) noexcept {
  bool has_dependents = false;
  for_each_dependent(ended, ended.version, ended.version,
                     [&](const Life&) { has_dependents = true; });
  return has_dependents && !can_compute(ended);
}

/// What has to run so that `wanted` are there, or `last` can run, which then is one of them: in the
/// order of the first run, in which each operator finds the versions that it found then. With it
/// comes what could not be computed afterwards: what is made of an earlier version of something
/// that is dropped and comes back.
std::vector<Recomputer::Record*> Recomputer::records_for(std::vector<Ingredient> wanted,
                                                         Record* last) {
  std::vector<Record*> found;
  const std::vector<Ingredient> asked = wanted;
  const std::uint64_t question = ++questions_;
  const auto take = [&](Record& record, const Life* made) {
    if (std::exchange(record.question, question) == question) return;
    found.push_back(&record);
    for (const Ingredient& input : record.inputs)
      if (input.life != made) wanted.push_back(input);
  };
  if (last != nullptr) take(*last, nullptr);
  for (std::size_t looked_into = 0;;) {
    while (!wanted.empty()) {
      const auto [life, version] = wanted.back();
      wanted.pop_back();
      if (is_there(*life, version)) continue;
      if (life->temporary && life->temporary_version > version) {
        forget_temporaries();
        return records_for(asked, last);
      }
      if (life->is_in_use() || life->writers.size() <= version)
        throw RecomputeError("{}, of which it is computed, has changed since{}",
                             life->writers.empty()
                                 ? "a tensor from before the recorded operators"
                                 : message("what {} made", life->writers.back()->op->describe()),
                             life->failure);
      // A temporary may hold an earlier version: then only later writers are missing.
      for (std::uint32_t i = life->temporary ? life->temporary_version + 1 : 0; i <= version; ++i)
        take(*life->writers[i], life);
    }
    if (looked_into == found.size()) break;
    const Record& record = *found[looked_into++];
    if (record.made_version == 0) continue;
    record.for_each_made([&](Life& life) {
      if (!life.is_dropped || life.version != record.made_version) return;
      for_each_dependent(life, 0, life.version - 1, [&](Life& other) {
        wanted.push_back({&other, other.version});
      });
    });
  }
  std::sort(found.begin(), found.end(),
            [](const Record* a, const Record* b) { return a->moment < b->moment; });
  return found;
}

}  // namespace spillway::runtime
