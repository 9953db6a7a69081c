#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "byte_copy.h"
#include "claim_orders.h"
#include "kept_storages.h"
#include "recorded_call.h"
#include "spillway/recompute/placements.h"
#include "spillway/recompute/replay_engine.h"

namespace spillway::recompute {

/// Runs a recorded call once more. Everything it made or claimed is given back with it, however
/// the call ends, but for the outputs that are taken.
class ReplayCall {
 public:
  /// `places`: per output where it is wanted, nullptr where it does not matter.
  ReplayCall(const RecordedCall& call, std::vector<void*> places, ClaimOrders& orders);

  /// Says where the bytes of a paged storage among the arguments are. Before `run`, for each.
  void bind(std::size_t storage, void* address);

  /// `hidden`: keys that do not see the call.
  void run(c10::DispatchKeySet hidden);

  /// What the operator returned; placed outputs show their place.
  const torch::jit::Stack& results() const { return results_; }
  /// Outputs that had to be copied.
  std::uint32_t copies() const { return copies_; }
  /// Whether the next replay of such a call may do with fewer.
  bool has_learned() const { return has_learned_; }

  /// Outputs without a place; drops the rest. Throws when the kernel has kept a place for itself.
  std::vector<ReplayedOutput> take_outputs();

 private:
  void bind_kept(std::size_t storage, const KeptStorage& kept);
  at::Tensor tensor(const TensorArgument& argument) const;
  torch::jit::Stack arguments() const;
  std::vector<c10::Storage> output_storages() const;
  std::vector<PlacementScope::Place> claimable() const;
  void settle();
  void learn(const std::vector<c10::Storage>& outputs);
  bool is_place(const void* address) const;

  const RecordedCall& call_;
  const std::vector<void*> places_;
  ClaimOrders& orders_;
  const std::vector<std::uint32_t> order_;
  std::vector<c10::Storage> storages_;  ///< Of the arguments; they own nothing.
  std::vector<KeptStorage::Lease> leases_;
  std::vector<ByteCopy> scratch_;
  std::optional<PlacementScope> scope_;  ///< Outlives what may lie in a place.
  torch::jit::Stack results_;
  std::uint32_t copies_ = 0;
  bool has_learned_ = false;
};

}  // namespace spillway::recompute
