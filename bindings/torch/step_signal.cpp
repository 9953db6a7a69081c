#include "step_signal.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

namespace spillway::torch_binding {

StepSignal::Event StepSignal::observe(bool written_leaf) {
  const bool in_backward = ::torch::autograd::get_current_graph_task_id() != -1;
  if (in_backward) {
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
