#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/pipeline/ownership/model_units.h"
#include "spillway/pipeline/ownership/placement.h"
#include "spillway/planner/partition/partition_problem.h"

namespace spillway::pipeline {

/// Seconds that a rank has computed for a unit in one step.
struct UnitSeconds {
  float forward = 0;
  float backward = 0;
};

/// One step of all ranks.
struct MeasuredStep {
  std::uint64_t micro_batches = 1;
  std::vector<std::vector<UnitSeconds>> seconds;  ///< By rank and unit.
};

struct BalancerOptions {
  std::vector<Bytes> budgets;  ///< By rank.
  std::vector<double>
      in_flight;  ///< By stage: micro-batches whose stash it holds at once, at most.
  /// Between the ranks of a stage and those of the one before, in each direction; empty: nothing.
  std::vector<TransferRate> link_rates{};
  TransferRate swap_rate{1.0};  ///< To or from where a rank swaps, while both go on.
  /// Cuts stay where others are not quicker by this share: measured times vary.
  double least_gain = 0.1;
};

/// Other cuts, and what they are worth.
struct Recut {
  std::vector<std::size_t> first_of_stage;  ///< Number of the unit that each stage begins with.
  double seconds_before = 0, seconds_after = 0;  ///< Of the slowest stage, per micro-batch.
  std::uint32_t units = 0;                       ///< That move,
  Bytes bytes;                                   ///< with so many.
};

/// Cuts a model anew where its steps show that stages take uneven times, or that a rank has become
/// slower than it was: units then move between neighbours, the fewest bytes that reach the time
/// (planner/partition, on-line re-balancing after vPipe, IEEE TPDS 33(3), 2022). One thread.
class Balancer {
 public:
  Balancer(Placement placement, BalancerOptions options);

  /// A step that was cut as the present ones are.
  void add(MeasuredStep step);
  bool knows_enough() const;  ///< Steps: else `look` finds nothing.
  /// What to cut next; nothing: it is good as it is, or too few steps are known.
  std::optional<Recut> look(const std::vector<ModelUnit>& units,
                            const std::vector<UnitBorder>& borders,
                            const std::vector<std::size_t>& first_of_stage);
  /// The model was cut anew: steps from before count no more.
  void forget() { steps_.clear(); }
  /// By rank, from now on.
  void set_budgets(std::vector<Bytes> budgets);
  /// Its units are those of another model: nothing that is known of units holds.
  void forget_model();
  /// Of the slowest stage for a micro-batch, as `look` has last found it measured for the present
  /// cuts; 0: it has not looked.
  double slowest_seconds() const { return slowest_seconds_; }
  /// How many times as long a rank takes for a micro-batch of its units as they took first.
  double slowdown_of(Rank rank) const { return slowdowns_[rank.value()]; }

 private:
  void take_times(const std::vector<std::size_t>& first_of_stage,
                  const std::vector<ModelUnit>& units);
  partition::PartitionProblem problem_of(const std::vector<ModelUnit>& units,
                                         const std::vector<UnitBorder>& borders,
                                         bool has_limits) const;
  std::uint64_t turns_of(Rank rank, std::uint32_t stage, std::uint64_t micro_batches) const;
  std::optional<UnitSeconds> least_of(Rank rank, std::size_t unit, std::uint32_t stage) const;

  Placement placement_;
  BalancerOptions options_;
  std::deque<MeasuredStep> steps_;  ///< The latest.
  /// Of one micro-batch, by unit, when it was first measured; negative: it was not.
  std::vector<UnitSeconds> first_;
  std::vector<double> slowdowns_;  ///< By rank.
  double slowest_seconds_ = 0;
};

}  // namespace spillway::pipeline
