#include "spillway/runtime/recomputer.h"

#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/log.h"
#include "spillway/base/signals_blocked.h"

namespace spillway::runtime {

/// An operator that may run again, with what it found and made.
struct Recomputer::Record {
  OpIndex place = 0;  ///< In the step.
  std::unique_ptr<RecordedOp> op;
  std::vector<Ingredient> inputs;
  std::vector<Life*> written;
  std::vector<Life*> outputs;
};

/// One storage that recorded operators have to do with. Its version counts the writes to it.
struct Recomputer::Life {
  StorageKey key = 0;
  RangeId range;
  bool is_alive = true;
  bool is_dropped = false;
  bool is_freed = false;  ///< By the trainer, but still needed.
  std::uint32_t version = 0;
  std::vector<Record*> writers;  ///< By the version that they make, up to the first gap.
  // While replays run.
  std::optional<ReplayedStorage> temporary;
  std::uint32_t temporary_version = 0;
};

/// Whatever happens, memory of replays does not outlive what it was made for.
class Recomputer::TemporariesForgotten {
 public:
  explicit TemporariesForgotten(Recomputer& owner) : owner_(owner) {}
  ~TemporariesForgotten() { owner_.forget_temporaries(); }
  TemporariesForgotten(const TemporariesForgotten&) = delete;
  TemporariesForgotten& operator=(const TemporariesForgotten&) = delete;

 private:
  Recomputer& owner_;
};

Recomputer::Recomputer(swap::SwapEngine& engine, RunAsOp run_as_op)
    : engine_(engine), run_as_op_(std::move(run_as_op)) {
  const SignalsBlocked blocked;
  server_ = std::thread([this] { serve_wanted(); });
}

Recomputer::~Recomputer() {
  engine_.end_drops();
  server_.join();
}

StorageKey Recomputer::key_of(RangeId range) const { return engine_.life_of(range); }

Recomputer::Life& Recomputer::life_of(StorageKey key) {
  auto& life = lives_[key];
  if (life == nullptr) {
    life = std::make_unique<Life>();
    life->key = key;
    life->range = RangeId(static_cast<std::uint32_t>(key) - 1);
    live_[life->range] = life.get();
  }
  return *life;
}

Recomputer::Life* Recomputer::live(RangeId range) {
  const auto found = live_.find(range);
  return found == live_.end() ? nullptr : found->second;
}

RecomputationCounts Recomputer::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

// --- What is made of what ---------------------------------------------------------------------

void Recomputer::keep(OpIndex place, std::unique_ptr<RecordedOp> op) {
  const std::lock_guard lock(mutex_);
  active_.store(true, std::memory_order_relaxed);
  Record& record = *records_.emplace_back(std::make_unique<Record>());
  record.op = std::move(op);
  record.place = place;
  placed_[place] = &record;
  for (const StorageKey key : record.op->inputs()) {
    Life& life = life_of(key);
    record.inputs.push_back({&life, life.version});
  }
  for (const StorageKey key : record.op->written()) record.written.push_back(&life_of(key));
  for (const StorageKey key : record.op->outputs()) record.outputs.push_back(&life_of(key));
  // What changes one storage and makes others, or changes several, cannot run again for one alone.
  const bool is_usable =
      record.written.empty() || (record.written.size() == 1 && record.outputs.empty());
  for (Life* const life : record.written) {
    ++life->version;
    if (is_usable && life->writers.size() == life->version) life->writers.push_back(&record);
  }
  for (Life* const life : record.outputs)
    if (is_usable && life->version == 0 && life->writers.empty()) life->writers.push_back(&record);
}

bool Recomputer::is_there(const Life& life, std::uint32_t version) const {
  if (life.temporary && life.temporary_version == version) return true;
  return life.is_alive && !life.is_dropped && life.version == version;
}

/// Whether its operators may run to make that version: they would overwrite a later one.
bool Recomputer::may_be_made(const Life& life, std::uint32_t version) const {
  const bool is_in_use = life.is_alive && !life.is_dropped;
  const bool is_beyond = life.temporary && life.temporary_version > version;
  return !is_in_use && !is_beyond && life.writers.size() > version;
}

/// `above`: what is being looked into; nothing is made of itself, but lives are in several
/// versions.
bool Recomputer::can_compute(const Life& life, std::uint32_t version,
                             std::vector<const Life*>& above) const {
  if (is_there(life, version)) return true;
  if (!may_be_made(life, version)) return false;
  above.push_back(&life);
  for (std::uint32_t i = 0; i <= version; ++i) {
    for (const Ingredient& input : life.writers[i]->inputs) {
      // What it is written from is its own earlier version.
      const bool is_itself = std::find(above.begin(), above.end(), input.life) != above.end();
      if (!is_itself && !can_compute(*input.life, input.version, above)) return false;
    }
  }
  above.pop_back();
  return true;
}

bool Recomputer::can_compute(const Life& life) const {
  std::vector<const Life*> above;
  if (life.writers.size() != life.version + 1) return false;
  above.push_back(&life);
  for (const Record* writer : life.writers) {
    for (const Ingredient& input : writer->inputs)
      if (input.life != &life && !can_compute(*input.life, input.version, above)) return false;
  }
  return true;
}

/// Whether computing the life takes the present bytes of the ingredient.
bool Recomputer::needs(const Life& life, std::uint32_t version, const Life& ingredient,
                       std::vector<const Life*>& above) const {
  if (&life == &ingredient && is_there(life, version)) return true;
  if (is_there(life, version) || life.writers.size() <= version) return false;
  above.push_back(&life);
  for (std::uint32_t i = 0; i <= version; ++i) {
    for (const Ingredient& input : life.writers[i]->inputs) {
      const bool is_itself = std::find(above.begin(), above.end(), input.life) != above.end();
      if (!is_itself && needs(*input.life, input.version, ingredient, above)) return true;
    }
  }
  above.pop_back();
  return false;
}

// --- Dropping and bringing back ---------------------------------------------------------------

bool Recomputer::drop(RangeId range) {
  const std::lock_guard lock(mutex_);
  Life* const life = live(range);
  const bool may_go = life != nullptr && !life->is_dropped && !life->is_freed &&
                      can_compute(*life) && engine_.drop(range);
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
  restore(life, life.version);
}

void Recomputer::restore_unplanned(Life& life) {
  const std::uint64_t before = counts_.replays;
  restore(life);
  counts_.unplanned_replays += counts_.replays - before;
}

void Recomputer::restore(Life& life, std::uint32_t version) {
  if (is_there(life, version)) return;
  if (!may_be_made(life, version))
    throw IoError("a dropped storage cannot be computed again: what it was made of has changed");
  // A temporary may hold an earlier version: then only later writers are missing.
  for (std::uint32_t i = 0; i <= version && !is_there(life, version); ++i) {
    if (life.temporary && life.temporary_version >= i && life.temporary_version <= version)
      continue;
    for (const Ingredient& input : life.writers[i]->inputs) {
      if (input.life != &life) restore(*input.life, input.version);
    }
    if (life.temporary && life.temporary_version >= i && life.temporary_version <= version)
      continue;
    run(*life.writers[i]);
  }
}

void Recomputer::run(Record& record) {
  std::vector<RangeUse> uses;
  const auto address_of = [&](StorageKey key) -> void* {
    const Life& life = *lives_.at(key);
    return life.temporary ? life.temporary->address : engine_.address_of(life.range);
  };
  for (const Ingredient& input : record.inputs) {
    RangeUse use = engine_.find(address_of(input.life->key));
    use.writes =
        std::find(record.written.begin(), record.written.end(), input.life) != record.written.end();
    uses.push_back(use);
  }
  ++counts_.replays;
  run_as_op_(record.place, uses, [&](swap::PinSet& pins) {
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
  for (ReplayedStorage& storage : made) {
    Life& life = *lives_.at(storage.key);
    const bool is_wanted = !life.is_alive || life.is_dropped;
    if (!is_wanted || life.temporary) continue;
    life.temporary = std::move(storage);
    life.temporary_version = 0;
    temporaries_.push_back(&life);
    adopt_if_complete(life, pins);
  }
}

void Recomputer::adopt_if_complete(Life& life, swap::PinSet& pins) {
  if (!life.is_dropped || life.temporary_version != life.version) return;
  const RangeUse from = engine_.find(life.temporary->address);
  while (!engine_.adopt(life.range, from.range, pins)) engine_.pin(pins, {&from, 1});
  life.is_dropped = false;
  std::erase(dropped_, &life);
  std::erase(temporaries_, &life);
  life.temporary.reset();
}

void Recomputer::forget_temporaries() {
  for (Life* const life : temporaries_) life->temporary.reset();
  temporaries_.clear();
}

void Recomputer::forget_needless_temporaries(std::span<Record* const> to_come) {
  std::erase_if(temporaries_, [&](Life* life) {
    const bool is_needed = std::any_of(to_come.begin(), to_come.end(), [&](const Record* record) {
      return record != nullptr &&
             std::any_of(record->inputs.begin(), record->inputs.end(),
                         [&](const Ingredient& input) { return input.life == life; });
    });
    if (!is_needed) life->temporary.reset();
    return !is_needed;
  });
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
  // From the last one back: what brings a dropped storage back, and what those are made of.
  std::vector<const Life*> wanted(dropped_.begin(), dropped_.end());
  for (std::size_t i = records.size(); i-- > 0;) {
    if (records[i] == nullptr) continue;
    const auto is_wanted = [&](const Life* life) {
      return std::find(wanted.begin(), wanted.end(), life) != wanted.end();
    };
    const bool helps =
        std::any_of(records[i]->outputs.begin(), records[i]->outputs.end(), is_wanted) ||
        std::any_of(records[i]->written.begin(), records[i]->written.end(), is_wanted);
    if (!helps) {
      records[i] = nullptr;
      continue;
    }
    for (const Ingredient& input : records[i]->inputs)
      if (!is_there(*input.life, input.version)) wanted.push_back(input.life);
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    around(i, false);
    if (records[i] != nullptr) {
      for (const Ingredient& input : records[i]->inputs) restore(*input.life, input.version);
      run(*records[i]);
      forget_needless_temporaries({records.data() + i + 1, records.size() - i - 1});
    }
    around(i, true);
  }
}

// --- Guarding ---------------------------------------------------------------------------------

void Recomputer::restore_dependents(const Life& ingredient) {
  for (std::size_t i = 0; i < dropped_.size();) {
    Life& life = *dropped_[i];
    std::vector<const Life*> above;
    if (&life == &ingredient || !needs(life, life.version, ingredient, above)) {
      ++i;
      continue;
    }
    restore_unplanned(life);
    i = 0;  // Others may have come back with it.
  }
}

void Recomputer::note_write(Life& life, bool is_recorded) {
  if (!dropped_.empty()) restore_dependents(life);
  if (!is_recorded) ++life.version;  // The gap in its writers tells that it cannot be computed.
}

void Recomputer::before_op(std::span<const RangeUse> uses, bool is_recorded) {
  const std::lock_guard lock(mutex_);
  for (const RangeUse& use : uses) {
    Life* const life = live(use.range);
    if (life == nullptr) continue;
    if (life->is_dropped) restore_unplanned(*life);  // May bring others back, too.
    if (use.writes) note_write(*life, is_recorded);
  }
}

void Recomputer::note_unrecorded_writes(std::span<const RangeId> written) {
  const std::lock_guard lock(mutex_);
  for (const RangeId range : written) {
    if (Life* const life = live(range)) ++life->version;
  }
}

bool Recomputer::may_end(RangeId range) {
  const std::lock_guard lock(mutex_);
  Life* const life = live(range);
  if (life == nullptr || life->key != key_of(range)) return true;
  if (life->is_dropped) {
    life->is_dropped = false;
    std::erase(dropped_, life);
  }
  life->is_alive = false;
  const bool is_needed = std::any_of(dropped_.begin(), dropped_.end(),
                                     [&](const Life* other) { return !can_compute(*other); });
  if (is_needed) {
    life->is_alive = true;
    life->is_freed = true;
    postponed_.push_back(life);
    return false;
  }
  live_.erase(range);
  return true;
}

std::vector<RangeId> Recomputer::take_ended() {
  const std::lock_guard lock(mutex_);
  for (Life* const life : postponed_) {
    restore_dependents(*life);
    life->is_alive = false;
    live_.erase(life->range);
    ended_.push_back(life->range);
  }
  postponed_.clear();
  return std::exchange(ended_, {});
}

void Recomputer::restore_all() {
  const std::lock_guard lock(mutex_);
  while (!dropped_.empty()) restore_unplanned(*dropped_.back());
}

void Recomputer::end_step() {
  const std::lock_guard lock(mutex_);
  restore_all();
  for (Life* const life : postponed_) ended_.push_back(life->range);
  postponed_.clear();
  placed_.clear();
  records_.clear();
  live_.clear();
  lives_.clear();
  active_.store(!ended_.empty(), std::memory_order_relaxed);
}

/// Storages that are touched by whoever knows nothing of drops.
void Recomputer::serve_wanted() {
  ::pthread_setname_np(::pthread_self(), "spillway-again");
  while (true) {
    const RangeId wanted = engine_.wait_for_wanted();
    if (!wanted.is_some()) return;
    const std::lock_guard lock(mutex_);
    Life* const life = live(wanted);
    if (life == nullptr || !life->is_dropped) continue;
    try {
      restore_unplanned(*life);
    } catch (const std::exception& error) {
      engine_.give_up(wanted, error.what());
    }
  }
}

}  // namespace spillway::runtime
