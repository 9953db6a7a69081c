#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/pipeline/tasks/task_queue.h"
#include "spillway/schedule/schedule.h"

namespace spillway::pipeline {

/// The action lists of a schedule's ranks as one order, in which an action stands behind those
/// before it in its rank's list and those whose output it needs. A program asks for micro-batches
/// one after the other, forward and backward; `turn` is the place of one among those of its
/// pipeline, which go through the schedule's replicas by turns. Pure.
class ActionOrder {
 public:
  /// Throws PlanError for lists that cannot run.
  explicit ActionOrder(const schedule::Schedule& schedule);

  /// Where an action stands, from 1 on.
  struct Place {
    std::uint64_t order = 0;
    /// Of the gradients of weights, where the schedule has backward in two parts; else the same.
    std::uint64_t order_of_rest = 0;
  };
  /// Nothing: the lists have no such action.
  std::optional<Place> place_of(bool is_backward, std::uint32_t stage, std::uint64_t turn) const;

  std::uint64_t turns() const { return turns_; }
  std::uint64_t last() const { return last_; }  ///< The highest order.
  /// The list of a rank of the pipeline; each phase counts the turns, twice for forward and
  /// backward.
  const std::vector<ListedAction>& list_of(std::uint32_t rank) const { return lists_[rank]; }
  /// How far ahead of the oldest micro-batch that it has not ended a rank's list begins others,
  /// with it.
  std::uint64_t window_of(std::uint32_t rank) const;

 private:
  enum class Part : std::uint8_t { kForward, kInputGradient, kWeightGradient };
  static constexpr std::size_t kParts = 3;

  std::size_t at(Part part, std::uint32_t stage, std::uint64_t turn) const {
    return (turn * stages_ + stage) * kParts + static_cast<std::size_t>(part);
  }
  bool may_follow(const schedule::Schedule& schedule, const schedule::Action& action) const;
  void append(const schedule::Schedule& schedule, std::uint32_t rank,
              const schedule::Action& action);

  std::uint32_t stages_ = 0;
  std::uint64_t turns_ = 0;
  std::uint64_t last_ = 0;
  std::vector<std::uint64_t> orders_;  ///< By turn, stage and part; 0: not yet.
  std::vector<std::vector<ListedAction>> lists_;
};

}  // namespace spillway::pipeline
