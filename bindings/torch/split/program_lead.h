#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "action_lists.h"
#include "executor.h"
#include "spillway/pipeline/ownership/ownership.h"
#include "spillway/recompute/surroundings.h"

namespace spillway::split {

/// How far the program is ahead of the executor: by some micro-batches, as its batches take memory,
/// and some calls. The program's thread, which waits here.
class ProgramLead {
 public:
  /// All outlive it.
  ProgramLead(const pipeline::Ownership& ownership, Executor& executor, ActionLists& lists)
      : ownership_(ownership), executor_(executor), lists_(lists) {}

  /// Micro-batches of each pipeline so far: windows count those.
  std::uint64_t turn() const;
  /// Another micro-batch may have begun, and with it a step.
  void look_at_micro_batch();

  /// A call of that micro-batch is about to be queued. Flags of the process, as the default type,
  /// hold for what is queued until all of it is done.
  void before_call(const recompute::Surroundings::Flags& now, Executor::MicroBatch micro_batch);
  /// Queues a call that has waited; it runs under the flags of the process that held for it. For
  /// one of that micro-batch.
  void submit(PendingCall call, std::span<const pipeline::StorageOrdinal> reads,
              std::span<const pipeline::StorageOrdinal> writes, Executor::MicroBatch micro_batch);

 private:
  std::uint64_t most_lead() const;
  void look_at_queue(Executor::MicroBatch micro_batch);

  const pipeline::Ownership& ownership_;
  Executor& executor_;
  ActionLists& lists_;
  std::uint64_t micro_batch_ = 0;                        ///< The latest, counted through the run.
  std::uint64_t first_micro_batch_ = 0;                  ///< Of this step, counted so.
  std::optional<recompute::Surroundings::Flags> flags_;  ///< Of the latest call in the queue.
  std::uint64_t queued_ = 0;                             ///< Calls.
  /// Those of forward and backward for the present micro-batch, and the most for one before.
  std::uint64_t queued_in_turn_ = 0, most_queued_in_turn_ = 0;
};

}  // namespace spillway::split
