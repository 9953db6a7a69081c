// Random numbers follow the seed and the offset of the CUDA generator. Runs with EMU_RNG=cuda.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "compared.h"

namespace spillway::emulated {
namespace {

at::Generator cuda_generator() {
  return at::globalContext().defaultGenerator(at::Device(at::kCUDA, 0));
}

at::Tensor ones() { return at::ones({200}, at::TensorOptions(at::kCUDA)); }

TEST(Generator, GivesTheSameDrawsFromASavedStateAndOthersAfterwards) {
  at::Generator generator = cuda_generator();
  for (int run = 0; run < 3; ++run) {
    const at::Tensor state = generator.get_state();
    const at::Tensor first = at::dropout(ones(), 0.5, true);
    const at::Tensor second = at::dropout(ones(), 0.5, true);
    generator.set_state(state);
    EXPECT_TRUE(at::equal(at::dropout(ones(), 0.5, true), first));
    EXPECT_TRUE(at::equal(at::dropout(ones(), 0.5, true), second));
    EXPECT_FALSE(at::equal(first, second));
  }
}

TEST(Generator, FollowsItsSeed) {
  at::Generator generator = cuda_generator();
  generator.set_current_seed(5);
  const at::Tensor first = at::randn({50}, at::TensorOptions(at::kCUDA));
  generator.set_current_seed(6);
  const at::Tensor other = at::randn({50}, at::TensorOptions(at::kCUDA));
  generator.set_current_seed(5);
  EXPECT_TRUE(at::equal(at::randn({50}, at::TensorOptions(at::kCUDA)), first));
  EXPECT_FALSE(at::equal(first, other));
}

TEST(Generator, OfTheTrainersOwnIsUsed) {
  at::Generator own = at::make_generator<at::CUDAGeneratorImpl>(c10::DeviceIndex(0));
  own.set_current_seed(3);
  const at::Tensor state = cuda_generator().get_state();
  const at::Tensor first = ones().bernoulli_(0.5, own);
  own.set_current_seed(3);
  EXPECT_TRUE(at::equal(ones().bernoulli_(0.5, own), first));
  EXPECT_TRUE(at::equal(cuda_generator().get_state(), state));
}

TEST(Generator, LeavesTheGeneratorOfTheCpuAlone) {
  const at::Tensor state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  at::dropout(ones(), 0.5, true);
  at::randperm(30, at::TensorOptions(at::kCUDA));
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(at::kCPU).get_state(), state));
}

TEST(Generator, BackwardOfAttentionDropsWhatForwardDropped) {
  const auto query = [] { return drawn({1, 2, 16, 8}).cuda(); };
  const at::Tensor value = query().requires_grad_(true);
  const at::Tensor weights = query();
  for (int run = 0; run < 3; ++run) {
    const at::Tensor output = at::scaled_dot_product_attention(query(), query(), value, {}, 0.5);
    const at::Tensor gradient = torch::autograd::grad({output}, {value}, {weights})[0];
    // The output is linear in the value, so both sums are the same but for rounding.
    const double forward = (output * weights).sum().item<double>();
    const double backward = (gradient * value).sum().item<double>();
    EXPECT_NEAR(forward, backward, 1e-3 * (std::abs(forward) + 1));
  }
}

TEST(Generator, DoesNotMoveWithoutDropout) {
  const at::Tensor state = cuda_generator().get_state();
  const at::Tensor query = drawn({1, 2, 16, 8}).cuda();
  at::scaled_dot_product_attention(query, query, query);
  EXPECT_TRUE(at::equal(cuda_generator().get_state(), state));
}

}  // namespace
}  // namespace spillway::emulated
