#include "autograd_watch.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <limits>

namespace spillway::torch_binding {
namespace {

/// Leaves collect their gradients in nodes that no operator has made; all have this number.
constexpr std::uint64_t kOfLeaves = std::numeric_limits<std::uint64_t>::max();

AutogradNode node_that_runs() {
  const auto node = ::torch::autograd::get_current_node();
  if (node == nullptr || node->sequence_nr() == kOfLeaves) return {};
  return {node->thread_id(), node->sequence_nr()};
}

}  // namespace

void AutogradWatch::observe(bool needs_gradient, AutogradFacts& facts) {
  const std::uint64_t next = at::sequence_number::peek();
  const bool is_new = next != next_number_;
  next_number_ = next;
  const bool has_gradients = c10::GradMode::is_enabled();
  const bool is_in_backward = ::torch::autograd::get_current_graph_task_id() != -1;
  if (is_new || has_gradients || is_in_backward) function_until_ = 0;
  // Kernels of backward use parameters too, which makes no nodes.
  const bool is_maker = is_new && needs_gradient && (has_gradients || !is_in_backward);
  if (is_maker && !has_gradients) function_until_ = next;
  const bool is_in_function = function_until_ != 0;
  if (is_maker || is_in_function) {
    if (thread_ == 0) thread_ = at::RecordFunction::currentThreadId();
    facts.made = {thread_, next - 1};
  }
  if (is_in_backward) {
    facts.phase = OpPhase::kBackward;
    facts.runs_in = node_that_runs();
    is_forward_ = false;
    return;
  }
  const bool is_accounted = is_in_function || (has_gradients && needs_gradient);
  is_forward_ |= is_accounted;
  const bool is_forward = is_accounted || (has_gradients && is_forward_);
  facts.phase = is_forward ? OpPhase::kForward : OpPhase::kOther;
}

}  // namespace spillway::torch_binding
