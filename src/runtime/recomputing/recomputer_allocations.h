#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/runtime/recomputing/recomputer.h"

namespace spillway::runtime {

/// A call that may run again, with what it found and made.
struct Recomputer::KeptCall {
  RecordedCall call;
  OpIndex place = 0;         ///< In the step.
  std::uint64_t moment = 0;  ///< Of its first run: calls in the order in which they were kept.
  std::vector<Ingredient> inputs{};
  std::vector<Allocation*> written{};
  std::vector<Allocation*> outputs{};
  std::uint32_t made_version = 0;  ///< Of what it writes; what it makes is in version 0.
  std::uint64_t question = 0;      ///< The latest one that came by here.

  /// Calls `visit` with each allocation that this is the operator to make it in `made_version`.
  template <typename Visit>
  void for_each_made(const Visit& visit) const;
};

/// One storage that recorded operators have to do with. Its version counts the writes to it.
struct Recomputer::Allocation {
  StorageId storage;
  bool is_alive = true;
  bool is_dropped = false;
  bool is_freed = false;      ///< By the trainer, but still needed.
  device::Event freed_until;  ///< What the trainer gave a device uses it until then.
  std::uint32_t version = 0;
  std::vector<KeptCall*> writers;  ///< By the version that they make, up to the first gap.
  std::string failure;             ///< Why what was made of it did not come back before that gap.
  struct Reader {
    KeptCall* kept = nullptr;
    std::uint32_t version = 0;  ///< That it found.
  };
  std::vector<Reader> readers;  ///< In the order in which they ran.
  // While replays run.
  std::optional<OutputMemory> temporary;
  std::uint32_t temporary_version = 0;
  LastUse planned_use, present_use;
  // While a question is answered, see Agenda.
  std::uint64_t question = 0;
  std::uint32_t reached = 0;
  std::uint32_t looked_into = 0;
  bool is_on_agenda = false;
  Allocation* next = nullptr;

  bool is_in_use() const { return is_alive && !is_dropped; }
};

template <typename Visit>
void Recomputer::KeptCall::for_each_made(const Visit& visit) const {
  for (const std::vector<Allocation*>* const allocations : {&written, &outputs}) {
    for (Allocation* const allocation : *allocations)
      if (allocation->writers.size() > made_version && allocation->writers[made_version] == this)
        visit(*allocation);
  }
}

/// Allocations that a question has still to look into. They are linked through themselves: storages
/// are freed where nothing may throw, and chains of them may be longer than a stack.
class Recomputer::Agenda {
 public:
  explicit Agenda(Recomputer& owner) : question_(++owner.questions_) {}
  ~Agenda() {
    while (take() != nullptr) {
    }
  }
  Agenda(const Agenda&) = delete;
  Agenda& operator=(const Agenda&) = delete;

  bool has_met(const Allocation& allocation) const { return allocation.question == question_; }
  /// Whether the question comes to that allocation for the first time.
  bool meets(Allocation& allocation) const {
    if (allocation.question == question_) return false;
    allocation.question = question_;
    allocation.reached = allocation.looked_into = 0;
    return true;
  }
  void add(Allocation& allocation) {
    if (std::exchange(allocation.is_on_agenda, true)) return;
    allocation.next = std::exchange(top_, &allocation);
  }
  Allocation* take() {
    Allocation* const allocation = top_;
    if (allocation == nullptr) return nullptr;
    top_ = allocation->next;
    allocation->is_on_agenda = false;
    return allocation;
  }

 private:
  std::uint64_t question_;
  Allocation* top_ = nullptr;
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

/// Calls `visit` with each dropped allocation that is computed from one of these versions of
/// `source`, directly or by way of allocations that have ended. What is behind another dropped one
/// is left out: it does not depend on the source once that is back.
template <typename Visit>
void Recomputer::for_each_dependent(Allocation& source, std::uint32_t first, std::uint32_t last,
                                    const Visit& visit) {
  Agenda agenda(*this);
  const auto follow = [&](const Allocation& allocation, std::uint32_t from, std::uint32_t to) {
    for (const Allocation::Reader& reader : allocation.readers) {
      if (reader.version < from || reader.version > to) continue;
      const std::uint32_t version = reader.kept->made_version;
      reader.kept->for_each_made([&](Allocation& made) {
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
  while (const Allocation* const allocation = agenda.take())
    follow(*allocation, allocation->reached, allocation->version);
}

}  // namespace spillway::runtime
