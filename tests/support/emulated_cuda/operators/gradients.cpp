#include "gradients.h"

#include <ATen/Parallel.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <thread>

#include "kernels_alone.h"

namespace spillway::emulated {
namespace {

using c10::DispatchKey;

/// As on the thread of a trainer on the CPU, without whoever intercepts operators or hooks
/// autograd.
class TrainerOnCpu {
 public:
  TrainerOnCpu()
      : keys_(c10::default_included_set,
              c10::DispatchKeySet(c10::DispatchKeySet::FULL) - keys_of_kernels() - autograd_keys()),
        hooks_(at::SavedTensorDefaultHooks::get_tls_state()) {
    at::SavedTensorDefaultHooks::disable("the emulated CUDA keeps what it saves to itself", false);
  }
  ~TrainerOnCpu() { at::SavedTensorDefaultHooks::set_tls_state(hooks_); }
  TrainerOnCpu(const TrainerOnCpu&) = delete;
  TrainerOnCpu& operator=(const TrainerOnCpu&) = delete;

 private:
  static c10::DispatchKeySet autograd_keys() {
    return c10::autograd_dispatch_keyset.add(DispatchKey::ADInplaceOrView);
  }

  c10::impl::ForceDispatchKeyGuard keys_;
  at::impl::SavedTensorDefaultHooksTLS hooks_;
};

Tensors leaves_of(const Tensors& inputs) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    at::Tensor leaf = input.defined() ? input.detach() : input;
    if (leaf.defined() && leaf.is_floating_point()) leaf.set_requires_grad(true);
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

Tensors run_backward(const Tensors& results, const Tensors& weights, const Tensors& leaves) {
  torch::autograd::edge_list roots;
  torch::autograd::edge_list ends;
  Tensors seeds;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!weights[i].defined() || !results[i].requires_grad()) continue;
    roots.push_back(torch::autograd::impl::gradient_edge(results[i]));
    seeds.push_back(weights[i]);
  }
  Tensors gradients(leaves.size());
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].defined() || !leaves[i].requires_grad()) continue;
    ends.push_back(torch::autograd::impl::gradient_edge(leaves[i]));
    places.push_back(i);
  }
  if (roots.empty()) return gradients;
  Tensors found = torch::autograd::Engine::get_base_engine().execute(
      roots, seeds, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/false, ends);
  for (std::size_t k = 0; k < places.size(); ++k) gradients[places[k]] = found[k];
  return gradients;
}

}  // namespace

Tensors results_of(const Function& function, const Tensors& inputs) {
  const TrainerOnCpu surroundings;
  Tensors results;
  for (const at::Tensor& result : function(inputs)) results.push_back(result.detach());
  return results;
}

Tensors gradients_of(const Function& function, const Tensors& inputs, const Tensors& weights) {
  Tensors gradients;
  std::exception_ptr failure;
  std::thread worker([&] {
    try {
      at::init_num_threads();
      const TrainerOnCpu surroundings;
      const at::AutoGradMode mode(true);
      const Tensors leaves = leaves_of(inputs);
      gradients = run_backward(function(leaves), weights, leaves);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  worker.join();
  if (failure) std::rethrow_exception(failure);
  return gradients;
}

}  // namespace spillway::emulated
