#include <gmock/gmock.h>

#include "spillway/base/error.h"
#include "spillway/memory/cuda/cuda_pages.h"
#include "support/shadow_device.h"

namespace spillway::memory {
namespace {

TEST(CudaPagesWithoutHeaders, AreRefusedWithTheReason) {
  EXPECT_THAT([] { make_cuda_pages(std::make_shared<device::ShadowDevice>()); },
              testing::ThrowsMessage<UnsupportedError>(testing::StartsWith(
                  "device cuda:7 has no pages: this Spillway was built without CUDA")));
}

}  // namespace
}  // namespace spillway::memory
