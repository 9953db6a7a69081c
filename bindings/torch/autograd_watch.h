#pragma once

#include <cstdint>

#include "spillway/base/autograd_facts.h"

namespace spillway::torch_binding {

/// Tells of each operator what autograd makes of it, from the state that LibTorch keeps for the
/// thread. One per thread; sees all its outermost operators.
///
/// Autograd makes the node of an operator right before it calls the kernel, so a node that is new
/// since the operator before is that of this one, unless this one has no input that requires a
/// gradient. Views and hooks make nodes that nobody sees here; their operators in backward belong
/// to the last operator before them. A custom Function has one node for all operators of its
/// forward, which run without gradients: they are told from an evaluation by the node that is new.
/// Inside of backward, in what checkpointing computes anew, its operators have none.
class AutogradWatch {
 public:
  /// Before the kernel. `needs_gradient`: an input requires a gradient. `facts` are new, and set in
  /// place: copies of what was just written in parts cost each operator more than the rest of this.
  void observe(bool needs_gradient, AutogradFacts& facts);

 private:
  std::uint64_t next_number_ = 0;     ///< Of the thread's next node, at the operator before.
  std::uint64_t function_until_ = 0;  ///< While it is that, a custom Function runs; 0: none does.
  std::uint64_t thread_ = 0;
  bool is_forward_ = false;  ///< The last operator that autograd kept account of was of forward.
};

}  // namespace spillway::torch_binding
