#include "spillway/device/cpu.h"

#include <gtest/gtest.h>

#include "queue_conformance.h"
#include "support/golden_part.h"
#include "support/manual_clock.h"

namespace spillway::device {
namespace {

struct CpuFixture {
  std::unique_ptr<Device> open() { return make_cpu_device(); }
  std::string why;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, DeviceConformance, CpuFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, QueueConformance, CpuFixture);

TEST(CpuDevice, StampsEventsByItsClock) {
  const auto clock = std::make_shared<ManualClock>();
  const auto device = make_cpu_device(clock);
  const auto queue = device->make_queue("test");
  const Event from = queue->record(Timing::kKept);
  queue->run([&clock] {
    clock->advance(std::chrono::milliseconds(7));
    return Outcome{};
  });
  const Event to = queue->record(Timing::kKept);
  to.wait();
  EXPECT_EQ(elapsed(from, to), std::chrono::milliseconds(7));
}

TEST(CpuDevice, SharesTheMemoryOfTheHost) {
  const auto device = make_cpu_device();
  EXPECT_TRUE(device->id().is_host());
  const DeviceMemory memory = device->allocate(64_B);
  memory.span().data[63] = std::byte{5};
  EXPECT_FALSE(device->capabilities().peer_copies);
}

TEST(Devices, SaysWhyABackendIsNotThere) {
  const std::array backends{cpu_backend()};
  const auto all = devices(backends);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].kind, DeviceKind::kCpu);
  EXPECT_EQ(all[0].devices, std::vector{DeviceId()});
  EXPECT_EQ(all[0].reason, "");
  EXPECT_EQ(all[1].kind, DeviceKind::kCuda);
  EXPECT_TRUE(all[1].devices.empty());
  EXPECT_EQ(all[1].reason, "this build has no CUDA backend (configure with SPILLWAY_WITH_CUDA=ON)");
}

std::string refusal(DeviceId id, std::span<const DeviceBackend> backends) {
  try {
    static_cast<void>(open_device(id, backends));
  } catch (const UnsupportedError& error) {
    return error.what();
  }
  return "none";
}

TEST(Devices, OpensWhatIsThere) {
  // What a build with two GPUs sees, their memory on the host.
  const DeviceBackend two{DeviceKind::kCuda,
                          [] {
                            return BackendStatus{DeviceKind::kCuda,
                                                 {{DeviceKind::kCuda, 0}, {DeviceKind::kCuda, 1}},
                                                 {}};
                          },
                          [](DeviceId) { return make_cpu_device(); }};
  const std::array backends{cpu_backend(), two};
  EXPECT_EQ(open_device(DeviceId(), backends)->id(), DeviceId());
  EXPECT_NE(open_device({DeviceKind::kCuda, 1}, backends), nullptr);
  GoldenPart golden;
  golden.add(refusal({DeviceKind::kCuda, 2}, backends));
  golden.add(refusal({DeviceKind::kCuda, 0}, std::array{cpu_backend()}));
}

}  // namespace
}  // namespace spillway::device
