#include "spillway/runtime/recomputer.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/signals_blocked.h"

namespace spillway::runtime {

/// An operator that may run again, with what it found and made.
struct Recomputer::Record {
  OpIndex place = 0;         ///< In the step.
  std::uint64_t moment = 0;  ///< Of its first run: records in the order in which they were kept.
  std::unique_ptr<RecordedOp> op;
  std::vector<Ingredient> inputs;
  std::vector<Life*> written;
  std::vector<Life*> outputs;
  std::uint32_t made_version = 0;  ///< Of what it writes; what it makes is in version 0.
  std::uint64_t question = 0;      ///< The latest one that came by here.

  /// Calls `visit` with each life that this is the operator to make it in `made_version`.
  template <typename Visit>
  void for_each_made(const Visit& visit) const;
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
  std::string failure;           ///< Why what was made of it did not come back before that gap.
  struct Reader {
    Record* record = nullptr;
    std::uint32_t version = 0;  ///< That it found.
  };
  std::vector<Reader> readers;  ///< In the order in which they ran.
  // While replays run.
  std::optional<ReplayedStorage> temporary;
  std::uint32_t temporary_version = 0;
  LastUse planned_use, present_use;
  // While a question is answered, see Agenda.
  std::uint64_t question = 0;
  std::uint32_t reached = 0;
  std::uint32_t looked_into = 0;
  bool is_on_agenda = false;
  Life* next = nullptr;

  bool is_in_use() const { return is_alive && !is_dropped; }
};

template <typename Visit>
void Recomputer::Record::for_each_made(const Visit& visit) const {
  for (const std::vector<Life*>* const lives : {&written, &outputs}) {
    for (Life* const life : *lives)
      if (life->writers.size() > made_version && life->writers[made_version] == this) visit(*life);
  }
}

/// Lives that a question has still to look into. They are linked through themselves: storages are
/// freed where nothing may throw, and chains of them may be longer than a stack.
class Recomputer::Agenda {
 public:
  explicit Agenda(Recomputer& owner) : question_(++owner.questions_) {}
  ~Agenda() {
    while (take() != nullptr) {
    }
  }
  Agenda(const Agenda&) = delete;
  Agenda& operator=(const Agenda&) = delete;

  bool has_met(const Life& life) const { return life.question == question_; }
  /// Whether the question comes to that life for the first time.
  bool meets(Life& life) const {
    if (life.question == question_) return false;
    life.question = question_;
    life.reached = life.looked_into = 0;
    return true;
  }
  void add(Life& life) {
    if (std::exchange(life.is_on_agenda, true)) return;
    life.next = std::exchange(top_, &life);
  }
  Life* take() {
    Life* const life = top_;
    if (life == nullptr) return nullptr;
    top_ = life->next;
    life->is_on_agenda = false;
    return life;
  }

 private:
  std::uint64_t question_;
  Life* top_ = nullptr;
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
    // Room for all of them: storages are dropped and freed where nothing may throw.
    for (std::vector<Life*>* const list : {&dropped_, &postponed_})
      if (list->capacity() < lives_.size()) list->reserve(2 * lives_.size());
  }
  return *life;
}

Recomputer::Life* Recomputer::live(RangeId range) {
  const auto found = live_.find(range);
  return found == live_.end() ? nullptr : found->second;
}

RecomputationCounts Recomputer::counts() const {
  return {counts_.replays.load(), counts_.unplanned_replays.load(), counts_.refused_drops.load()};
}

// --- What is made of what ---------------------------------------------------------------------

void Recomputer::keep(OpIndex place, std::unique_ptr<RecordedOp> op) {
  const std::lock_guard lock(mutex_);
  active_.store(true, std::memory_order_relaxed);
  Record& record = *records_.emplace_back(std::make_unique<Record>());
  record.op = std::move(op);
  record.place = place;
  record.moment = records_.size();
  placed_[place] = &record;
  for (const StorageKey key : record.op->inputs()) {
    Life& life = life_of(key);
    record.inputs.push_back({&life, life.version});
    life.readers.push_back({&record, life.version});
  }
  for (const StorageKey key : record.op->written()) record.written.push_back(&life_of(key));
  for (const StorageKey key : record.op->outputs()) record.outputs.push_back(&life_of(key));
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
  if (!engine_.guard(life.range)) ++life.version;
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

/// Calls `visit` with each dropped life that is computed from one of these versions of `source`,
/// directly or by way of lives that have ended. What is behind another dropped one is left out: it
/// does not depend on the source once that is back.
template <typename Visit>
void Recomputer::for_each_dependent(Life& source, std::uint32_t first, std::uint32_t last,
                                    const Visit& visit) {
  Agenda agenda(*this);
  const auto follow = [&](const Life& life, std::uint32_t from, std::uint32_t to) {
    for (const Life::Reader& reader : life.readers) {
      if (reader.version < from || reader.version > to) continue;
      const std::uint32_t version = reader.record->made_version;
      reader.record->for_each_made([&](Life& made) {
        if (&made == &source || made.is_in_use()) return;
        const bool is_new = agenda.meets(made);
        if (made.is_alive) {
          if (is_new) visit(made);
          return;
        }
        // Later versions are made of earlier ones.
        if (!is_new && made.reached <= version) return;
        made.reached = version;
        agenda.add(made);
      });
    }
  };
  follow(source, first, last);
  while (const Life* const life = agenda.take()) follow(*life, life->reached, life->version);
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

// --- Dropping and bringing back ---------------------------------------------------------------

bool Recomputer::drop(RangeId range) {
  const std::lock_guard lock(mutex_);
  Life* const life = live(range);
  const bool may_go = life != nullptr && !life->is_dropped && !life->is_freed && forks_ == 0 &&
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

// --- Guarding ---------------------------------------------------------------------------------

void Recomputer::restore_dependents(Life& ingredient) {
  std::vector<Life*> dependents;
  for_each_dependent(ingredient, ingredient.version, ingredient.version,
                     [&](Life& life) { dependents.push_back(&life); });
  std::exception_ptr failure;
  for (Life* const life : dependents) {
    if (!life->is_dropped) continue;  // It has come back with another one.
    try {
      restore_unplanned(*life);
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();  // The others may still come.
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
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

bool Recomputer::may_end(RangeId range) noexcept {
  const std::lock_guard lock(mutex_);
  Life* const life = live(range);
  if (life == nullptr || life->key != key_of(range)) return true;
  if (life->is_dropped) {
    life->is_dropped = false;
    std::erase(dropped_, life);
  } else if (!dropped_.empty() && is_needed(*life)) {
    life->is_freed = true;
    postponed_.push_back(life);
    return false;
  }
  life->is_alive = false;
  live_.erase(range);
  return true;
}

std::vector<RangeId> Recomputer::take_ended() {
  const std::lock_guard lock(mutex_);
  while (!postponed_.empty()) {
    Life* const life = postponed_.back();
    restore_dependents(*life);  // Where it throws, none that is done is done again later.
    life->is_alive = false;
    live_.erase(life->range);
    ended_.push_back(life->range);
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
  return message("{} that had to be computed again cannot come back before a fork: {}",
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
  for (; !postponed_.empty(); postponed_.pop_back()) ended_.push_back(postponed_.back()->range);
  placed_.clear();
  records_.clear();
  live_.clear();
  lives_.clear();
  active_.store(!ended_.empty(), std::memory_order_relaxed);
}

/// Somebody waits to write to a storage past the operators: that is like an operator which nobody
/// has recorded. It cannot be refused, so what does not come back now is lost.
void Recomputer::allow_write(RangeId range) {
  if (Life* const life = live(range)) {
    try {
      note_write(*life, false);
    } catch (const std::exception& error) {
      life->failure = message(" ({})", error.what());
      ++life->version;
    }
  }
  engine_.unguard(range);
}

/// Storages that are touched by whoever knows nothing of drops and records.
void Recomputer::serve_wanted() {
  ::pthread_setname_np(::pthread_self(), "spillway-again");
  while (true) {
    const RangeId wanted = engine_.wait_for_wanted();
    if (!wanted.is_some()) return;
    const std::lock_guard lock(mutex_);
    Life* const life = live(wanted);
    try {
      if (life != nullptr && life->is_dropped) restore_unplanned(*life);
      if (engine_.is_write_awaited(wanted)) allow_write(wanted);
    } catch (const std::exception& error) {
      engine_.give_up(wanted, error.what());
    }
  }
}

}  // namespace spillway::runtime
