// The suite on a device whose memory the host cannot touch: the cases themselves keep to spans.
#include "support/shadow_device.h"
#include "queue_conformance.h"

namespace spillway::device {
namespace {

struct ShadowFixture {
  std::unique_ptr<Device> open() { return std::make_unique<ShadowDevice>(); }
  std::string why;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Shadow, DeviceConformance, ShadowFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(Shadow, QueueConformance, ShadowFixture);

TEST(ShadowDevice, KeepsTheHostOut) {
  ShadowDevice device;
  const DeviceMemory memory = device.allocate(64_B);
  EXPECT_DEATH(*static_cast<volatile std::byte*>(memory.span().data) = std::byte{1}, "");
}

TEST(ShadowDevice, LetsQueuesOfTwoDevicesWaitForOneAnother) {
  ShadowDevice device;
  expect_to_wait_for_queues_of_the_host(device);
}

}  // namespace
}  // namespace spillway::device
