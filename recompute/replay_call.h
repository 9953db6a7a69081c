#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <vector>

#include "byte_copy.h"
#include "kept_storages.h"
#include "spillway/recompute/call/recorded_call.h"
#include "torch_call.h"

namespace spillway::recompute {

/// Runs a recorded call once more. Everything it made is given back with it, however the call ends,
/// but for the outputs that are taken.
class ReplayCall {
 public:
  explicit ReplayCall(const TorchCall& call);

  /// Says where the bytes of a paged storage among the arguments are. Before `run`, for each.
  void bind(std::size_t storage, void* address);

  void run();

  /// What the operator returned.
  const torch::jit::Stack& results() const { return results_; }

  /// These outputs; drops the rest. Throws when they are not among the results.
  std::vector<OutputMemory> take_outputs(const std::vector<StorageMade>& outputs);

 private:
  void bind_kept(std::size_t storage, const KeptStorage& kept);
  at::Tensor tensor(const TensorArgument& argument) const;
  torch::jit::Stack arguments() const;

  const TorchCall& call_;
  std::vector<c10::Storage> storages_;  ///< Of the arguments; they own nothing.
  std::vector<KeptStorage::Lease> leases_;
  std::vector<ByteCopy> scratch_;
  torch::jit::Stack results_;
};

}  // namespace spillway::recompute
