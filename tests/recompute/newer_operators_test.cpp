// Operators that LibTorch has got since the oldest release that is served. They are called by name:
// the headers of older releases do not declare them.

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/headeronly/version.h>

#include <vector>

#include "operator_table.h"

namespace spillway::recompute {
namespace {

struct NewerOperator {
  int since;  ///< Minor release of LibTorch 2 that has it on the CPU.
  const char* name;
  torch::jit::Stack arguments;
};

TEST_F(Operators, OfNewerReleases) {
  const Tensor key = at::tensor({1, 2}, at::kLong).to(at::kUInt64);
  const Tensor square = rnd({64, 64});
  const std::vector<Tensor> list = {rnd({32, 64}), rnd({64, 64})};
  const std::vector<Tensor> factors = {rnd({64, 16}), rnd({64, 16})};
  const std::vector<NewerOperator> operators = {
      {14, "aten::_philox_normal_", {rnd({64, 64}), key, 0.0, 1.0}},
      {14, "aten::_philox_uniform", {square, key, 0.0, 1.0}},
      {14, "aten::_philox_key_split", {key, 1024}},
      {12, "aten::_foreach_clone", {list, {}}},
      {13, "aten::_foreach_mm", {list, factors}},
      {14, "aten::linalg_polar", {square}},
      {14, "aten::linalg_matrix_sqrth", {at::mm(square, square.t())}},
      {15, "aten::_philox_randint_", {at::zeros({64, 64}, at::kLong), key, 0, 100}},
  };
  for (const NewerOperator& newer : operators) {
    const auto op = c10::Dispatcher::singleton().findSchema({newer.name, ""});
    // Some have a schema before they have a kernel.
    if (TORCH_VERSION_MINOR < newer.since) continue;
    ASSERT_TRUE(op.has_value()) << newer.name;
    check({{newer.name, [&] {
              torch::jit::Stack stack = newer.arguments;
              op->callBoxed(stack);
            }}});
  }
}

}  // namespace
}  // namespace spillway::recompute
