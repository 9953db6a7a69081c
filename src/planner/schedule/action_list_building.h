#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner_schedule {

using schedule::folded_placement;
using schedule::reversed_placement;
using schedule::round_placement;

/// An empty schedule of one replica, with the action lists of its ranks still to be filled.
Schedule one_replica(std::uint32_t ranks, std::uint32_t micro_batches,
                     std::vector<std::uint32_t> placement);

/// Forward and backward of a whole stage, as the generators write them.
inline Action forward(std::uint32_t stage, std::uint32_t micro_batch, std::uint32_t replica = 0) {
  return {ActionKind::kForward, stage, micro_batch, replica};
}
inline Action backward(std::uint32_t stage, std::uint32_t micro_batch, std::uint32_t replica = 0) {
  return {ActionKind::kBackward, stage, micro_batch, replica};
}
inline Action input_gradient(std::uint32_t stage, std::uint32_t micro_batch,
                             std::uint32_t replica = 0) {
  return {ActionKind::kInputGradient, stage, micro_batch, replica};
}
inline Action weight_gradient(std::uint32_t stage, std::uint32_t micro_batch,
                              std::uint32_t replica = 0) {
  return {ActionKind::kWeightGradient, stage, micro_batch, replica};
}
inline Action step(std::uint32_t stage, std::uint32_t last_micro_batch = kNoMicroBatch) {
  return {ActionKind::kStep, stage, last_micro_batch};
}

/// `warm_up` forwards, then one backward and one forward in turn, then the rest of the backwards.
/// The order of 1F1B and of all that differ from it in how early a rank begins only.
/// `make_backward` is `backward` or `input_gradient`.
std::vector<Action> one_forward_one_backward(std::uint32_t stage, std::uint32_t micro_batches,
                                             std::uint32_t warm_up,
                                             Action (*make_backward)(std::uint32_t, std::uint32_t,
                                                                     std::uint32_t));

/// One step at the end, of every stage that a rank holds, the last stage first: its gradient is the
/// first to be done.
void end_with_steps(Schedule& schedule);

/// Completes action lists of forwards and input gradients by the weight gradients. Each action list
/// keeps its order. A rank that would have to wait computes the oldest weight gradient that it owes
/// instead; and it does so before a forward that would take it above `most_held` stashes of
/// micro-batches that were begun and have not seen their weight gradient. All actions count as
/// equally long. `most_held` must suffice for the order: it is the caller's proof. Returns how
/// often it has looked at a rank: some times per action.
std::uint64_t fill_with_weight_gradients(Schedule& schedule, std::uint32_t most_held);

/// Fills empty action lists of full backwards and forwards: a rank does the oldest backward that
/// can run, else the forward that can run and is nearest to the end of the model, as long as it
/// holds less than `most_held` of it. All actions count as equally long. Returns how often it has
/// looked at a rank.
std::uint64_t order_greedily(Schedule& schedule, const std::vector<std::uint32_t>& most_held);

}  // namespace spillway::planner_schedule
