#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "operator_facts.h"
#include "results.h"

namespace spillway::emulated {

/// Stands for the CUDA kernel of one operator: runs the CPU kernel on the same bytes, in the order
/// of the current stream. Any thread.
class EmulatedOperator final : public c10::OperatorKernel {
 public:
  explicit EmulatedOperator(OperatorFacts facts) : facts_(std::move(facts)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack);

 private:
  using KnownPlan = std::shared_ptr<const ResultPlan>;

  torch::jit::Stack submit(const c10::OperatorHandle& op, CpuCall call, cudaStream_t stream,
                           const Workspace& workspace);
  torch::jit::Stack run_now(CpuCall& call, cudaStream_t stream, const Workspace& workspace,
                            KnownPlan& plan);
  KnownPlan known(const std::string& kind);

  const OperatorFacts facts_;
  std::mutex mutex_;  ///< Of what follows; nothing else is called with it.
  std::unordered_map<std::string, KnownPlan> plans_;  ///< By the kind of the call.
};

}  // namespace spillway::emulated
