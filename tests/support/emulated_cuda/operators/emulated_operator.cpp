#include "emulated_operator.h"

#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ScopeExit.h>

#include "call_kind.h"
#include "copies.h"
#include "settings.h"
#include "stream_job.h"
#include "support/emulated_cuda/runtime/emulation.h"

namespace spillway::emulated {
namespace {

/// On the calling thread, which a fault then names the operator of.
void compute(CpuCall& call, const Workspace& workspace) {
  const char* name = call.facts().name.c_str();
  call.check_memory();
  scribble(workspace.begin(), workspace.bytes(), name);
  emu_cuda_set_running(name);
  const auto end = c10::make_scope_exit([] { emu_cuda_set_running(nullptr); });
  call.run();
}

/// Who made room for them may have waited for another stream since the call began: a kernel starts
/// behind that.
void tell_targets(cudaStream_t stream, const std::vector<Target>& targets, const char* name) {
  if (!targets.empty()) emu_cuda_begin(stream);
  for (const Target& target : targets)
    if (target.bytes > 0) emu_cuda_use(stream, target.begin, target.bytes, 1, name);
}

std::size_t workspace_hint(const CpuCall& call) {
  return call.twins().empty() ? 0 : extent(call.twins().front().alias);
}

}  // namespace

void EmulatedOperator::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                                  torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  if (facts_.is_copy && copied_by_the_runtime(*stack)) return;
  CpuCall call(op, facts_, torch::jit::last(*stack, count));
  const c10::cuda::CUDAGuard device(call.device());
  const auto stream = c10::cuda::getCurrentCUDAStream(call.device());
  const Workspace workspace(facts_.workspace, stream, workspace_hint(call));
  emu_cuda_begin(stream.stream());
  call.tell_accesses(stream.stream());
  if (workspace.bytes() > 0)
    emu_cuda_use(stream.stream(), workspace.begin(), workspace.bytes(), 1, facts_.name.c_str());
  torch::jit::Stack results = submit(op, std::move(call), stream.stream(), workspace);
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

torch::jit::Stack EmulatedOperator::submit(const c10::OperatorHandle& op, CpuCall call,
                                           cudaStream_t stream, const Workspace& workspace) {
  std::optional<std::string> kind;
  if (settings().asynchronous) kind = kind_of(call);
  KnownPlan plan = kind ? known(*kind) : nullptr;
  // Of lists in place, which one may cut into other parts each time.
  if (kind && plan == nullptr && op.schema().returns().empty() && emu_cuda_captures(stream) != 0)
    plan = std::make_shared<const ResultPlan>();
  if (plan == nullptr) {
    torch::jit::Stack results = run_now(call, stream, workspace, plan);
    if (kind && plan != nullptr) {
      const std::lock_guard lock(mutex_);
      plans_.try_emplace(std::move(*kind), std::move(plan));
    }
    return results;
  }
  torch::jit::Stack results = make_results(call, *plan);
  std::vector<Target> targets = targets_of(results, *plan);
  tell_targets(stream, targets, facts_.name.c_str());
  call.forget_real();
  enqueue(stream, {.call = std::move(call),
                   .plan = std::move(plan),
                   .targets = std::move(targets),
                   .workspace = workspace.begin(),
                   .workspace_bytes = workspace.bytes(),
                   .has_gradients = at::GradMode::is_enabled()});
  return results;
}

/// Leaves `plan` null where calls of this kind cannot be planned.
torch::jit::Stack EmulatedOperator::run_now(CpuCall& call, cudaStream_t stream,
                                            const Workspace& workspace, KnownPlan& plan) {
  const char* name = facts_.name.c_str();
  // It would take a synchronization, which a capture forbids.
  TORCH_CHECK(emu_cuda_captures(stream) == 0, "emulated CUDA: ", facts_.name,
              " of a kind that has "
              "not run before, or whose result depends on values, is not captured into a graph");
  emu_cuda_drain(stream);
  compute(call, workspace);
  const bool has_resized = call.take_over_resized(stream);
  const ResultPlan found = plan_of(call);
  torch::jit::Stack results = make_results(call, found);
  const std::vector<Target> targets = targets_of(results, found);
  tell_targets(stream, targets, name);
  // What made room for the results may have given the stream something to wait for.
  emu_cuda_drain(stream);
  fill_targets(call, found, targets);
  if (!has_resized) plan = std::make_shared<const ResultPlan>(found);
  return results;
}

EmulatedOperator::KnownPlan EmulatedOperator::known(const std::string& kind) {
  const std::lock_guard lock(mutex_);
  const auto found = plans_.find(kind);
  return found == plans_.end() ? nullptr : found->second;
}

}  // namespace spillway::emulated
