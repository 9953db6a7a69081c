// The suite of PageMemory on the GPU that this process finds: a real one, or the emulated one where
// its runtime comes first in LD_LIBRARY_PATH.
#include "spillway/memory/cuda/cuda_pages.h"

#include <gmock/gmock.h>

#include "../page_memory_conformance.h"
#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/device/cuda/virtual_memory.h"
#include "support/shadow_device.h"

namespace spillway::memory {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::shared_ptr<device::Device> open_gpu() {
  return device::open_device({device::DeviceKind::kCuda, 0}, std::array{device::cuda_backend()});
}

std::string why_no_gpu() { return device::cuda_backend().probe().reason; }

PageMemoryUnderTest smallest_pages() {
  auto device = open_gpu();
  const Bytes size = device::CudaVirtualMemory(*device).granularity();
  return {make_cuda_pages(device, size), device};
}

class CudaPages : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    device_ = open_gpu();
    granularity_ = device::CudaVirtualMemory(*device_).granularity();
  }

  std::shared_ptr<device::Device> device_;
  Bytes granularity_;
};

TEST_F(CudaPages, HaveTwoMebibytesUnlessTheDeviceNeedsMore) {
  EXPECT_EQ(make_cuda_pages(device_)->page_size(), std::max(2_MiB, granularity_));
  EXPECT_EQ(make_cuda_pages(device_, granularity_ * 4)->page_size(), granularity_ * 4);
}

TEST_F(CudaPages, RefuseSizesThatTheDeviceDoesNotMap) {
  const auto made = [this](Bytes size) { return [=, this] { make_cuda_pages(device_, size); }; };
  for (const Bytes size : {Bytes(), granularity_ / 2, granularity_ * 3})
    EXPECT_THAT(made(size), ThrowsMessage<ConfigError>(
                                HasSubstr("give a power of two from " + to_string(granularity_))));
}

TEST_F(CudaPages, AreOfADeviceOfCuda) {
  EXPECT_THAT([] { make_cuda_pages(std::make_shared<device::ShadowDevice>()); },
              ThrowsMessage<Error>(HasSubstr("device cuda:7 has no virtual memory of CUDA")));
}

}  // namespace

std::vector<PageMemoryKind> page_memory_kinds() { return {{"Cuda", why_no_gpu, smallest_pages}}; }

}  // namespace spillway::memory
