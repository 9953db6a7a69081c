#include "odd_operators.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <limits>
#include <stdexcept>
#include <thread>
#include <tuple>

namespace spillway::recompute {

bool odd_operators_fail = false;

namespace {

using at::Tensor;

// Not destroyed: LibTorch's allocator may be gone by then.

std::tuple<Tensor, Tensor> swapped(const Tensor& x) {
  Tensor second = at::empty_like(x);
  Tensor first = at::empty_like(x);
  first.copy_(x).add_(1);
  second.copy_(x).add_(2);
  return {first, second};
}

Tensor fails(const Tensor& x) {
  Tensor result = at::empty_like(x);
  result.fill_(3);
  if (odd_operators_fail) throw std::runtime_error("told to fail");
  return result;
}

Tensor writes(const Tensor& x) {
  Tensor same = x;
  same.add_(1);
  return at::ones_like(x);
}

Tensor moves(const Tensor& x, const Tensor& running_mean) {
  Tensor moved = running_mean;
  return x + moved.add_(1);
}

Tensor draws(const Tensor& x) {
  at::rand({4});
  return x * 2;
}

Tensor beside(const Tensor& x) {
  static int calls = 0;
  if (++calls == 2) std::thread([] { at::rand({4}); }).join();
  return x * 2;
}

Tensor counts(const Tensor& x) {
  static int calls = 0;
  return x + ++calls;
}

Tensor sees(const Tensor& x) {
  // Half of the smallest normal number: zero when denormal numbers are flushed.
  volatile float smallest = std::numeric_limits<float>::min();
  const at::Context& context = at::globalContext();
  const std::vector<float> seen = {
      static_cast<float>(at::GradMode::is_enabled()),
      static_cast<float>(x.requires_grad()),
      static_cast<float>(at::get_num_threads()),
      static_cast<float>(at::autocast::is_autocast_enabled(at::kCPU)),
      static_cast<float>(at::autocast::get_autocast_dtype(at::kCPU)),
      smallest / 2 > 0 ? 1.F : 0.F,
      static_cast<float>(context.deterministicAlgorithms()),
      static_cast<float>(context.userEnabledMkldnn()),
      static_cast<float>(context.deterministicFillUninitializedMemory()),
      static_cast<float>(c10::get_default_dtype_as_scalartype()),
      static_cast<float>(
          context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL)),
  };
  Tensor result = at::zeros(x.sizes(), at::kFloat);
  for (std::size_t i = 0; i < seen.size(); ++i) result[static_cast<std::int64_t>(i)].fill_(seen[i]);
  return result;
}

}  // namespace

void register_odd_operators() {
  static auto* const library = [] {
    auto* made =
        new torch::Library(torch::Library::FRAGMENT, "aten", c10::nullopt, __FILE__, __LINE__);
    made->def("odd_swapped(Tensor x) -> (Tensor, Tensor)");
    for (const char* name : {"fails", "writes", "draws", "beside", "counts", "sees"})
      made->def((std::string("odd_") + name + "(Tensor x) -> Tensor").c_str());
    made->impl("odd_swapped", c10::DispatchKey::CPU, TORCH_FN(swapped));
    made->def("odd_moves(Tensor x, Tensor running_mean) -> Tensor");
    made->impl("odd_moves", c10::DispatchKey::CPU, TORCH_FN(moves));
    made->impl("odd_fails", c10::DispatchKey::CPU, TORCH_FN(fails));
    made->impl("odd_writes", c10::DispatchKey::CPU, TORCH_FN(writes));
    made->impl("odd_draws", c10::DispatchKey::CPU, TORCH_FN(draws));
    made->impl("odd_beside", c10::DispatchKey::CPU, TORCH_FN(beside));
    made->impl("odd_counts", c10::DispatchKey::CPU, TORCH_FN(counts));
    made->impl("odd_sees", c10::DispatchKey::CPU, TORCH_FN(sees));
    return made;
  }();
  static_cast<void>(library);
}

std::vector<Tensor> call_odd(const std::string& name, std::vector<c10::IValue> stack) {
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(("aten::odd_" + name).c_str(), "")
      .callBoxed(&stack);
  std::vector<Tensor> results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

}  // namespace spillway::recompute
