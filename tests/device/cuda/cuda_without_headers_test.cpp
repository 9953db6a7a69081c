// What a build without CUDA's headers says of GPUs.
#include <gtest/gtest.h>

#include <array>

#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "support/golden_part.h"

namespace spillway::device {
namespace {

TEST(CudaWithoutHeaders, HasNoDevicesAndSaysHowToGetThem) {
  const BackendStatus status = cuda_backend().probe();
  EXPECT_EQ(status.kind, DeviceKind::kCuda);
  EXPECT_TRUE(status.devices.empty());
  GoldenPart().add(status.reason);
  EXPECT_EQ(cuda_facts().reason, status.reason);
  const DeviceId first{DeviceKind::kCuda, 0};
  EXPECT_THROW(cuda_backend().open(first), UnsupportedError);
  EXPECT_THROW(open_device(first, std::array{cuda_backend()}), UnsupportedError);
}

}  // namespace
}  // namespace spillway::device
