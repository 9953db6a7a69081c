#include "compared.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>

namespace spillway::emulated {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr int kRunsOnDevice = 3;  // The first one teaches the forms of results.

at::Generator& inputs_generator() {
  static at::Generator generator = at::detail::createCPUGenerator(99);
  return generator;
}

Tensors leaves_on(const Compared& compared, at::Device device) {
  Tensors leaves;
  for (const at::Tensor& input : compared.inputs) {
    at::Tensor leaf = input.detach().clone().to(device);
    if (compared.has_gradients && leaf.is_floating_point()) leaf.set_requires_grad(true);
    leaves.push_back(leaf);
  }
  return leaves;
}

/// Weights that differ from element to element.
at::Tensor weights_like(const at::Tensor& result) {
  const at::Tensor weights =
      at::linspace(-1.0, 1.5, result.numel(), at::TensorOptions(at::kDouble));
  return weights.reshape(result.sizes()).to(result.scalar_type()).to(result.device());
}

Tensors gradients(const Tensors& results, const Tensors& leaves) {
  Tensors roots;
  Tensors weights;
  Tensors ends;
  for (const at::Tensor& result : results)
    if (result.defined() && result.requires_grad()) {
      roots.push_back(result);
      weights.push_back(weights_like(result));
    }
  for (const at::Tensor& leaf : leaves)
    if (leaf.requires_grad()) ends.push_back(leaf);
  if (roots.empty() || ends.empty()) return {};
  return torch::autograd::grad(roots, ends, weights, std::nullopt, false, /*allow_unused=*/true);
}

/// All that must be equal, on the CPU.
Tensors outcome(const Compared& compared, at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(kSeed);
  const Tensors leaves = leaves_on(compared, device);
  Tensors all = compared.function(leaves);
  for (const at::Tensor& gradient : gradients(all, leaves)) all.push_back(gradient);
  for (const at::Tensor& leaf : leaves) all.push_back(leaf);
  for (at::Tensor& tensor : all) {
    if (!tensor.defined()) continue;
    EXPECT_EQ(tensor.device().type(), device.type());
    tensor = tensor.detach().cpu();
  }
  return all;
}

}  // namespace

bool has_equal_bytes(const at::Tensor& one, const at::Tensor& other) {
  if (!one.defined() || !other.defined()) return one.defined() == other.defined();
  if (one.scalar_type() != other.scalar_type() || one.sizes() != other.sizes()) return false;
  const at::Tensor first = one.resolve_conj().resolve_neg().contiguous();
  const at::Tensor second = other.resolve_conj().resolve_neg().contiguous();
  return std::memcmp(first.const_data_ptr(), second.const_data_ptr(), first.nbytes()) == 0;
}

void expect_equal(const Compared& compared) {
  SCOPED_TRACE(compared.name);
  try {
    const Tensors expected = outcome(compared, at::kCPU);
    for (int run = 0; run < kRunsOnDevice; ++run) {
      const Tensors found = outcome(compared, at::Device(at::kCUDA, 0));
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(has_equal_bytes(found[i], expected[i])) << "run " << run << ", tensor " << i;
    }
  } catch (const c10::Error& error) {
    ADD_FAILURE() << error.what_without_backtrace();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

void expect_equal(const std::vector<Compared>& all) {
  for (const Compared& compared : all) expect_equal(compared);
}

at::Tensor drawn(at::IntArrayRef sizes) { return at::randn(sizes, inputs_generator()); }

at::Tensor drawn_integers(std::int64_t below, at::IntArrayRef sizes) {
  return at::randint(below, sizes, inputs_generator(), at::TensorOptions(at::kLong));
}

}  // namespace spillway::emulated
