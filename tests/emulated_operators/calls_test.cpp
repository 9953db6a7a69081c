// How operators run: later and in the order of the stream, without keeping memory, unseen by
// interceptors, and with refusals that name them. Runs with EMU_RNG=cuda and two devices.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <atomic>
#include <functional>
#include <string>

#include "compared.h"
#include "held_stream.h"

namespace spillway::emulated {
namespace {

using c10::cuda::CUDACachingAllocator::getDeviceStats;
using testing::HasSubstr;
using Stat = c10::CachingAllocator::StatType;

at::TensorOptions on_device() { return {at::Device(at::kCUDA, 0)}; }

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was refused";
}

std::int64_t bytes_in_use() {
  return getDeviceStats(0).allocated_bytes[std::size_t(Stat::AGGREGATE)].current;
}

TEST(Calls, OfAKnownKindRunWhenTheStreamComesToThem) {
  at::Tensor x = at::zeros({8}, on_device());
  x.add_(1);
  x.add(1);
  HeldStream stream;
  x.add_(1);  // Would wait for ever, if it waited.
  const at::Tensor y = x.add(1);
  stream.let_go();
  EXPECT_TRUE(at::equal(x.cpu(), at::full({8}, 2.0)));
  EXPECT_TRUE(at::equal(y.cpu(), at::full({8}, 3.0)));
}

TEST(Calls, TakeTheValueOfAHostTensorWhenTheyAreMade) {
  const at::Tensor x = at::ones({8}, on_device());
  at::Tensor factor = at::scalar_tensor(2.0);
  x.mul(factor);
  HeldStream stream;
  const at::Tensor y = x.mul(factor);
  factor.fill_(5);
  stream.let_go();
  EXPECT_TRUE(at::equal(y.cpu(), at::full({8}, 2.0)));
}

TEST(Calls, InTheQueueKeepNoMemory) {
  at::Tensor x = at::ones({1000}, on_device());
  at::Tensor y = x.sin();
  const std::int64_t before = bytes_in_use();
  HeldStream stream;
  y = x.sin();
  EXPECT_EQ(bytes_in_use(), before);
  x = at::Tensor();
  EXPECT_LT(bytes_in_use(), before);
}

TEST(Calls, OfOtherDevicesCopyByWayOfLikeLayouts) {
  const at::Tensor x = drawn({4, 6}).to(at::Device(at::kCUDA, 0));
  at::Tensor y = at::zeros({6, 4}, at::TensorOptions(at::Device(at::kCUDA, 1)).dtype(at::kDouble));
  y.t().copy_(x);
  EXPECT_TRUE(at::equal(y.cpu(), x.cpu().t().to(at::kDouble)));
}

std::atomic<int> intercepted{0};

void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  ++intercepted;
  const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake);
  op.redispatchBoxed(keys & below, stack);
}

TEST(Calls, ShowAnInterceptorTheOutermostOperatorAlone) {
  torch::Library library(torch::Library::IMPL, "_", c10::DispatchKey::Fake, __FILE__, __LINE__);
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&intercept>());
  const at::Tensor x = drawn({4, 8}).cuda();
  for (int run = 0; run < 3; ++run) {
    const c10::impl::IncludeDispatchKeyGuard guard(c10::DispatchKey::Fake);
    intercepted = 0;
    at::native_dropout(x, 0.3, true);  // Its mapping calls several operators.
    EXPECT_EQ(intercepted, 1);
  }
  c10::cuda::device_synchronize();
}

TEST(Workspace, OfMatrixProductsStays) {
  const at::Tensor x = at::ones({4, 4}, on_device());
  at::Tensor y = at::mm(x, x);
  const std::int64_t before = bytes_in_use();
  const auto other = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(other);
  c10::cuda::device_synchronize();
  y = at::mm(x, x);
  const std::int64_t with_workspace = bytes_in_use();
  EXPECT_GE(with_workspace - before, 1 << 20);
  y = at::mm(x, x);
  EXPECT_EQ(bytes_in_use(), with_workspace);
  c10::cuda::device_synchronize();
}

TEST(Workspace, OfConvolutionsGoesBack) {
  const at::Tensor x = at::ones({1, 4, 64, 64}, on_device());
  const at::Tensor weights = at::ones({1, 4, 1, 1}, on_device());
  c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  const std::int64_t before = bytes_in_use();
  const at::Tensor y = at::conv2d(x, weights);
  EXPECT_EQ(bytes_in_use() - before, std::int64_t(y.nbytes()));
  const auto peak = getDeviceStats(0).allocated_bytes[std::size_t(Stat::AGGREGATE)].peak;
  EXPECT_GE(peak - before, std::int64_t(x.nbytes()));
}

TEST(Refusals, NameTheOperatorThatNothingTakesThePlaceOf) {
  const at::Tensor x = at::ones({4}, on_device());
  EXPECT_THAT(refusal([&] { at::_fused_dropout(x, 0.5); }),
              HasSubstr("aten::_fused_dropout has no kernel"));
}

TEST(Refusals, NameTensorsOfTheHostAndOfOtherDevices) {
  const at::Tensor x = at::ones({4}, on_device());
  EXPECT_THAT(refusal([&] { x.add(at::ones({4})); }),
              HasSubstr("aten::add.Tensor has a tensor in host memory"));
  const at::Tensor other = at::ones({4}, at::TensorOptions(at::Device(at::kCUDA, 1)));
  EXPECT_THAT(refusal([&] { x.add(other); }),
              HasSubstr("aten::add.Tensor has tensors on cuda:0 and cuda:1"));
}

TEST(Refusals, AreThoseOfTheKernel) {
  const at::Tensor x = at::ones({4}, on_device());
  EXPECT_THAT(refusal([&] { x.add(at::ones({3}, on_device())); }),
              HasSubstr("must match the size"));
}

class Ends : public testing::Test {
 protected:
  Ends() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(Ends, NameTheOperatorThatFailsOnItsStream) {
  const auto run = [] {
    const at::Tensor table = at::ones({10, 4}, on_device());
    at::embedding(table, at::full({2}, 3, on_device().dtype(at::kLong)));
    at::embedding(table, at::full({2}, 1000, on_device().dtype(at::kLong)));
    c10::cuda::device_synchronize();
  };
  EXPECT_DEATH(run(), "aten::(embedding|index_select).* failed on its stream.*out of range");
}

/// Of memory that has been freed.
at::Tensor stale(std::int64_t count) {
  void* memory = nullptr;
  cudaMalloc(&memory, std::size_t(count) * sizeof(float));
  const at::Tensor tensor = at::from_blob(memory, {count}, on_device());
  cudaFree(memory);
  return tensor;
}

TEST_F(Ends, NameTheOperatorThatTouchesMemoryThatIsGone) {
  const auto at_once = [] { stale(24).add(1); };
  EXPECT_DEATH(at_once(), "aten::add.Tensor.*0x");
  const auto later = [] {
    at::ones({24}, on_device()).add(1);
    stale(24).add(1);
    c10::cuda::device_synchronize();
  };
  EXPECT_DEATH(later(), "aten::add.Tensor.*0x");
}

TEST_F(Ends, NameWritesToLists) {
  const auto run = [] {
    const at::Tensor x = at::ones({8}, on_device());
    c10::cuda::device_synchronize();
    at::_foreach_add_({x}, 1);
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    x.add(1);
  };
  EXPECT_DEATH(run(), "not ordered.*aten::add.*_foreach_add_");
}

TEST_F(Ends, NameWritesThatSchemasKeepToThemselves) {
  const auto run = [] {
    const at::Tensor x = drawn({4, 8, 3, 3}).cuda();
    const at::Tensor mean = at::zeros({8}, on_device());
    const at::Tensor variance = at::ones({8}, on_device());
    c10::cuda::device_synchronize();
    at::batch_norm(x, {}, {}, mean, variance, true, 0.1, 1e-5, false);
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    mean.add(1);
  };
  EXPECT_DEATH(run(), "not ordered.*add.*batch_norm");
}

}  // namespace
}  // namespace spillway::emulated
