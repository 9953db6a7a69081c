#pragma once

#include <cstdint>
#include <optional>

#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// The stage that uses what a compute makes or a send carries: the next one of an activation, the
/// one before of a gradient. Nothing at the ends of the model, for gradients of stages that are not
/// trained, and for all other actions.
inline std::optional<std::uint32_t> output_stage(const Schedule& schedule, const Action& action) {
  if (action.kind == ActionKind::kForward || action.kind == ActionKind::kSendForward) {
    if (action.stage + 1 == schedule.stages) return std::nullopt;
    return action.stage + 1;
  }
  if (!makes_input_gradient(action.kind) && action.kind != ActionKind::kSendBackward)
    return std::nullopt;
  if (action.stage <= schedule.untrained_stages) return std::nullopt;
  return action.stage - 1;
}

/// The stage that makes what a compute needs or a receive gets.
inline std::optional<std::uint32_t> input_stage(const Schedule& schedule, const Action& action) {
  if (action.kind == ActionKind::kForward || action.kind == ActionKind::kReceiveForward) {
    if (action.stage == 0) return std::nullopt;
    return action.stage - 1;
  }
  if (!makes_input_gradient(action.kind) && action.kind != ActionKind::kReceiveBackward)
    return std::nullopt;
  if (action.stage < schedule.untrained_stages || action.stage + 1 == schedule.stages)
    return std::nullopt;
  return action.stage + 1;
}

}  // namespace spillway::schedule
