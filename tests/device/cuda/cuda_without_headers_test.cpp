// What a build without CUDA's headers says of GPUs.
#include <gmock/gmock.h>

#include <array>

#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"

namespace spillway::device {
namespace {

TEST(CudaWithoutHeaders, HasNoDevicesAndSaysHowToGetThem) {
  const BackendStatus status = cuda_backend().probe();
  EXPECT_EQ(status.kind, DeviceKind::kCuda);
  EXPECT_TRUE(status.devices.empty());
  EXPECT_THAT(status.reason, testing::StartsWith("this Spillway was built without CUDA: "));
  EXPECT_THAT(status.reason, testing::HasSubstr("src/cmake/setup/fetch_cuda_headers.sh"));
  EXPECT_EQ(cuda_facts().reason, status.reason);
  const DeviceId first{DeviceKind::kCuda, 0};
  EXPECT_THROW(cuda_backend().open(first), UnsupportedError);
  EXPECT_THROW(open_device(first, std::array{cuda_backend()}), UnsupportedError);
}

}  // namespace
}  // namespace spillway::device
