#pragma once

namespace spillway::torch_binding {

/// Tells from the state of autograd when a trainer begins a new step: a backward pass, then a write
/// in place to a leaf that requires a gradient (the optimizer), then the first other operator with
/// gradients switched on. One per thread.
class StepSignal {
 public:
  /// Reports an outermost operator before it runs. `written_leaf`: it writes the storage of a leaf
  /// that requires a gradient.
  enum class Event {
    kNone,
    kUpdate,  ///< The optimizer begins to write.
    kBegin,   ///< The operator is the first one of a new step.
  };
  Event observe(bool is_in_backward, bool written_leaf);

 private:
  enum class Phase { kForward, kBackward, kUpdated };
  Phase phase_ = Phase::kForward;
};

}  // namespace spillway::torch_binding
