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
  const auto host = make_cpu_device();
  const auto ours = device.make_queue("ours");
  const auto theirs = host->make_queue("theirs");
  int value = 0;  // Not atomic: the thread sanitizer sees a missing order.
  ours->run([&value] {
    value = 1;
    return Outcome{};
  });
  theirs->wait(ours->record());
  theirs->run([&value] {
    value *= 10;
    return Outcome{};
  });
  ours->wait(theirs->record());
  ours->run([&value] {
    value += 5;
    return Outcome{};
  });
  const Event last = ours->record(Timing::kKept);
  last.wait();
  EXPECT_EQ(value, 15);
  EXPECT_THROW(elapsed(theirs->record(Timing::kKept), last), Error);
}

}  // namespace
}  // namespace spillway::device
