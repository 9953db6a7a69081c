#include "step_signal.h"

#include <c10/core/GradMode.h>

namespace spillway::torch_binding {

StepSignal::Event StepSignal::observe(bool is_in_backward, bool written_leaf) {
  if (is_in_backward) {
    phase_ = Phase::kBackward;
    return Event::kNone;
  }
  const bool updates = phase_ == Phase::kBackward && written_leaf;
  if (updates) phase_ = Phase::kUpdated;
  if (phase_ == Phase::kUpdated && c10::GradMode::is_enabled()) {
    phase_ = Phase::kForward;
    return Event::kBegin;
  }
  return updates ? Event::kUpdate : Event::kNone;
}

}  // namespace spillway::torch_binding
