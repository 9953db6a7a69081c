#pragma once

#include <optional>
#include <vector>

#include "spillway/schedule/schedule_check.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::schedule {

/// Runs the action lists without time: whatever concerns several ranks happens when all of them
/// have come to it. Action lists with messages must have passed `message_fault` and `order_fault`.
class Rendezvous {
 public:
  Rendezvous(const Schedule& schedule, const WeightCopies& copies);

  /// The action of a cycle that stands on its lowest rank.
  std::optional<ScheduleFault> fault();

 private:
  void run(std::uint32_t rank);
  bool pass(std::uint32_t rank, const Action& action);
  bool pass_compute(std::uint32_t rank, const Action& action);
  bool has_input(const Action& action) const;
  /// The other half of a compute that runs as one with the next; null for any other action.
  const Action* second_of(std::uint32_t rank, const Action& action) const;
  bool pass_reduction(const Action& action);
  bool is_at(std::uint32_t rank, const Action& action) const;
  /// For whom the rank waits; it stands at an action that cannot pass.
  std::uint32_t awaited_by(std::uint32_t rank) const;
  ScheduleFault describe(std::vector<std::uint32_t> cycle) const;
  const Action& current(std::uint32_t rank) const { return schedule_.ranks[rank][next_[rank]]; }
  bool is_over(std::uint32_t rank) const { return next_[rank] == schedule_.ranks[rank].size(); }
  std::size_t made(const Action& action, bool is_gradient) const {
    const std::size_t pass = std::size_t{action.replica} * schedule_.stages + action.stage;
    return 2 * (pass * schedule_.micro_batches + action.micro_batch) + (is_gradient ? 1 : 0);
  }
  /// The output that a compute needs from another stage; nothing at the ends of the model.
  std::optional<Action> source_of(const Action& action) const;
  /// Moves on over the ranks that stand at the same reduction; whether those are all of them.
  bool are_all_at(const Action& action);

  const Schedule& schedule_;
  const WeightCopies& copies_;
  bool has_messages_;
  std::vector<std::size_t> next_;
  std::vector<bool> made_;           // Activations and gradients; used without messages alone.
  std::vector<std::uint32_t> work_;  // Ranks that may be able to go on.
  std::vector<std::size_t> joined_;  // By stage: how many of its reducers, in turn, have come.
};

}  // namespace spillway::schedule
