#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/runtime/recomputing/recomputer.h"

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
  StorageId storage;
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

}  // namespace spillway::runtime
