#include "step_signal.h"

#include <c10/core/GradMode.h>

#include <utility>

namespace spillway::torch_binding {

StepSignal::Event StepSignal::observe(bool is_in_backward, bool written_leaf) {
  if (is_in_backward) {
    phase_ = Phase::kBackward;
    if (is_of_autograd_) of_autograd_.fetch_add(1, std::memory_order_relaxed);
    return Event::kNone;
  }
  is_of_autograd_ = false;
  const std::uint64_t elsewhere = of_autograd_.load(std::memory_order_relaxed);
  if (std::exchange(seen_of_autograd_, elsewhere) != elsewhere) phase_ = Phase::kBackward;
  if (written_leaf && phase_ != Phase::kForward)
    return std::exchange(phase_, Phase::kUpdated) == Phase::kBackward ? Event::kUpdate
                                                                      : Event::kNone;
  if (phase_ != Phase::kUpdated || !c10::GradMode::is_enabled()) return Event::kNone;
  phase_ = Phase::kForward;
  return Event::kBegin;
}

bool StepSignal::is_after_backward() const {
  if (phase_ != Phase::kForward) return !is_of_autograd_ || phase_ == Phase::kUpdated;
  return of_autograd_.load(std::memory_order_relaxed) != seen_of_autograd_;
}

}  // namespace spillway::torch_binding
