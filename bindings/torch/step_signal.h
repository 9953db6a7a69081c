#pragma once

#include <atomic>
#include <cstdint>

namespace spillway::torch_binding {

/// Tells from the state of autograd when a trainer begins a new step: a backward pass, then a write
/// in place to a leaf that requires a gradient (the optimizer), then the first other operator with
/// gradients switched on. One per thread. A pass that autograd runs on threads of its own, as it
/// does for devices, counts for all other threads: those that run it do nothing else, and only the
/// thread that trains writes leaves.
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
  /// Whether a backward pass has begun since the last step did, on another thread than one that
  /// does nothing else.
  bool is_after_backward() const;

 private:
  enum class Phase { kForward, kBackward, kUpdated };
  Phase phase_ = Phase::kForward;
  /// Operators of backward on threads of autograd so far.
  inline static std::atomic<std::uint64_t> of_autograd_{0};
  std::uint64_t seen_of_autograd_ = of_autograd_.load(std::memory_order_relaxed);
  bool is_of_autograd_ = true;  ///< This thread has seen nothing but backward.
};

}  // namespace spillway::torch_binding
