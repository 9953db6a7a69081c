#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/device/event.h"
#include "spillway/runtime/learning/step_learner.h"
#include "spillway/runtime/recording/op_text.h"
#include "spillway/runtime/recording/storage_pieces.h"
#include "spillway/swap/residency.h"

namespace spillway::runtime {

/// Guides the residency of storages through the steps of the thread that trains: tells the learner
/// what that thread does and makes orders of the learner's advice. Any thread may call; only the
/// one that trains ever waits while a plan is made. That is the first one, until another one begins
/// a step.
class StepGuide {
 public:
  /// What tells threads apart; several that take turns may share one.
  using Thread = const void*;

  StepGuide(const StepLearner::Options& options, swap::ResidencyAdvice& residency,
            const Clock& clock);

  /// What the plan wants done around an operator.
  struct Wish {
    swap::ResidencyOrders orders;  ///< For the engine: when the operator pins or unpins.
    bool forgets = false;          ///< Nothing recorded so far is needed any more.
    std::optional<profile::OpIndex> record_as;  ///< Record the operator that begins.
    std::vector<StorageId> drops;               ///< Storages to drop, after the operator.
  };

  /// The operator's signature as it stands on the tape; none for those of other threads, which are
  /// not learned and need no `end_op`. `text`: see `StepLearner::name_op`; null where nobody needs
  /// the name.
  std::optional<std::uint64_t> begin_op(Thread thread, std::uint64_t signature,
                                        std::span<const RangeUse> uses, const OpTraits& traits,
                                        const OpText* text, Wish& wish,
                                        std::span<const RangeUse> shared = {});
  /// False, and no wishes, where another thread has begun a step meanwhile.
  bool end_op(Thread thread, Wish& wish);

  /// What the plan runs again now, for the thread that was told so. The learner may go on meanwhile
  /// where another thread begins a step.
  struct DueReplays {
    std::vector<profile::OpIndex> places;
    Thread thread = nullptr;
    std::uint64_t seen_ops = 0;  ///< As StepLearner counts them.
  };
  /// See StepLearner. None but for the thread that trains.
  DueReplays due_replays(Thread thread, std::uint64_t signature, std::span<const RangeUse> uses);
  /// Of no effect once another thread trains, or another operator has begun: the learner is then in
  /// another plan, or elsewhere in that one.
  void begin_replay(const DueReplays& due, std::size_t position);
  void end_replay(const DueReplays& due, std::size_t position, Duration took, Bytes moved,
                  Wish& wish);
  void cannot_record(Thread thread);

  void allocated(Thread thread, StorageId storage, std::uint32_t pages, Bytes bytes,
                 bool is_filled);

  /// See StepLearner.
  void allocated_shared(Thread thread, StorageId page);
  void use_shared(Thread thread, StorageId page);

  /// What a storage is known to hold, for the recording.
  void note_class(Thread thread, StorageId storage, profile::StorageClass holds);

  /// Before the engine may give the range to somebody else.
  void freed(StorageId storage);

  /// Of the operator that runs, see StepLearner.
  void waited_for(Thread thread, StorageId storage, StallLedger::Reason reason, Duration time);

  /// The thread waited so long for pages or room within its operator, while so much moved.
  void waited(Thread thread, Duration time, Bytes moved);

  /// What the device comes to now; none while nothing is measured. No lock.
  std::optional<device::Event> moment() const;
  /// See StepLearner.
  void note_begin(Thread thread);
  void note_apart(Thread thread, const device::Event& from);

  void step_boundary(Thread thread);

  /// Whether the latest operator was part of a plan. No lock.
  bool follows_plan() const { return follows_plan_.load(std::memory_order_relaxed); }
  /// Finished ones, as the learner counts them. No lock.
  std::uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }

  /// None where the learner is busy for longer than that: a step may wait for its plan, and whoever
  /// ends with an exception that nobody catches keeps the mutex. `pause` lets time pass.
  std::optional<LearnerReport> report(
      Duration patience, const std::function<void(Duration)>& pause = &StepGuide::sleep) const;

 private:
  static void sleep(Duration time);
  StepLearner::Options with_storages(StepLearner::Options options) const;
  bool trains(Thread thread) const { return thread_.load(std::memory_order_relaxed) == thread; }
  bool holds_locked(const DueReplays& due) const;
  void tell_freed_locked();
  void take_advice_locked(swap::ResidencyOrders& orders);
  void take_wishes_locked(Wish& wish);
  bool translate_locked(std::span<const RangeUse> uses);

  /// Larger storages are learned only in pieces, with their uses: they are never there as a whole.
  const std::uint32_t most_pages_;
  swap::ResidencyAdvice& residency_;
  const std::function<std::uint32_t()> room_;  ///< Empty: what `residency_` says.
  const std::function<device::Event()> moment_;
  const Clock& clock_;

  std::atomic<Thread> thread_{nullptr};  ///< The one that trains.
  std::atomic<bool> is_boundary_{false};
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<bool> follows_plan_{false};
  std::atomic<bool> measures_{false};

  std::mutex freed_mutex_;
  std::vector<StorageId> freed_;  ///< What the learner is still to be told of, in order.

  mutable std::mutex learner_mutex_;
  StoragePieces pieces_;
  StepLearner learner_;
  Advice advice_;
  swap::ResidencyOrders replay_orders_;  ///< Scratch, as the next four.
  std::vector<PieceUse> uses_;
  std::vector<PieceUse> shared_;
  std::vector<PieceId> ended_;
  std::vector<StorageId> telling_;
};

}  // namespace spillway::runtime
