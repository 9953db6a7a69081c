#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Moments are seconds from the begin of the repetition. What began in the one before has a moment
/// below zero.
struct OperatorEvent {
  OpIndex op = 0;
  double begin = 0.0;
  double end = 0.0;
};

enum class WaitReason : std::uint8_t {
  kPages,  ///< Pages of an input are on their way.
  kRoom,   ///< No room in the budget for pages that must come in or be allocated.
};

/// An operator that could have begun waits.
struct WaitEvent {
  OpIndex op = 0;
  WaitReason reason = WaitReason::kPages;
  ValueIndex value = profile::kNoValue;  ///< Missing value; none when only room is missing.
  double begin = 0.0;
  double end = 0.0;
};

enum class Direction : std::uint8_t { kWriteOut, kReadIn };

/// Some pages of one value move as a whole.
struct TransferEvent {
  Direction direction = Direction::kWriteOut;
  Tier tier = Tier::kNear;
  ValueIndex value = 0;     ///< As numbered when it began, or at the step's begin if that is later.
  std::uint32_t pages = 0;  ///< 0: it goes on in the next repetition, which counts it.
  double begin = 0.0;
  double end = 0.0;
  /// A read that an operator waits for, so nothing overtakes it.
  bool is_demanded = false;
};

/// So many pages are taken from this moment on: resident ones, allocated ones, and those that reads
/// in flight will fill.
struct ResidencyEvent {
  double at = 0.0;
  std::uint32_t pages = 0;
};

/// Everything that the event model saw in one repetition of a step, each list in the order of time.
/// The slowdown of operators by transfers (`StepEstimate::interference_seconds`) has no moment: the
/// model adds it at the end.
struct StepEvents {
  std::vector<OperatorEvent> operators;
  std::vector<WaitEvent> waits;
  std::vector<TransferEvent> transfers;
  std::vector<ResidencyEvent> residency;

  void clear() {
    operators.clear();
    waits.clear();
    transfers.clear();
    residency.clear();
  }
};

/// As `estimate_step`, and tells what happened in the last repetition, which is the settled one
/// unless no two were equal (then the estimate is a mean of several).
StepEstimate observe_step(const StepTape& tape, const SwapPlan& plan, const SwapLimits& limits,
                          StepEvents& events);

}  // namespace spillway::planner
