#include <gtest/gtest.h>

#include "spillway/base/error.h"
#include "spillway/memory/cuda/cuda_pages.h"
#include "support/error_text.h"
#include "support/golden_part.h"
#include "support/shadow_device.h"

namespace spillway::memory {
namespace {

TEST(CudaPagesWithoutHeaders, AreRefusedWithTheReason) {
  GoldenPart().add(error_text<UnsupportedError>(
      [] { make_cuda_pages(std::make_shared<device::ShadowDevice>()); }));
}

}  // namespace
}  // namespace spillway::memory
