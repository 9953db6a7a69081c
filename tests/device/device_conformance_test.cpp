#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <numeric>
#include <vector>

#include "spillway/device/device.h"

namespace spillway::device {
namespace {

/// A backend joins the suite with its name and a function that makes it.
struct Backend {
  const char* name;
  std::unique_ptr<Device> (*make)();
};

class DeviceConformance : public testing::TestWithParam<Backend> {
 protected:
  std::unique_ptr<Device> device_ = GetParam().make();
};

TEST_P(DeviceConformance, CopiesBytesThroughItsMemory) {
  constexpr std::size_t kCount = 3 << 20;
  std::vector<std::byte> sent(kCount);
  for (std::size_t i = 0; i < kCount; ++i) sent[i] = static_cast<std::byte>(i * 7);
  std::vector<std::byte> received(kCount);
  std::byte* memory = device_->allocate(Bytes(kCount));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % (2 << 20), 0u);
  {
    const auto queue = device_->make_queue("test");
    queue->copy(memory, sent.data(), Bytes(kCount));
    EXPECT_TRUE(queue->copy(received.data(), memory, Bytes(kCount)).wait().succeeded());
  }
  EXPECT_EQ(std::memcmp(sent.data(), received.data(), kCount), 0);
  device_->release(memory, Bytes(kCount));
}

TEST_P(DeviceConformance, RunsTheWorkOfOneQueueInOrder) {
  std::vector<int> order;
  const auto queue = device_->make_queue("test");
  Completion last = queue->run([] { return Outcome{}; });
  for (int i = 0; i < 1000; ++i) {
    last = queue->run([&order, i] {
      order.push_back(i);
      return Outcome{};
    });
  }
  last.wait();
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST_P(DeviceConformance, RunsTwoQueuesAtTheSameTime) {
  const auto first = device_->make_queue("first");
  const auto second = device_->make_queue("second");
  std::promise<void> reached;
  // Ends only if the other queue runs meanwhile.
  const Completion waiting = first->run([&reached] {
    reached.get_future().wait();
    return Outcome{};
  });
  second->run([&reached] {
    reached.set_value();
    return Outcome{};
  });
  EXPECT_TRUE(waiting.wait().succeeded());
}

TEST_P(DeviceConformance, OrdersQueuesByWaitFor) {
  const auto first = device_->make_queue("first");
  const auto second = device_->make_queue("second");
  for (int round = 0; round < 200; ++round) {
    int value = 0;  // Not atomic: the thread sanitizer sees a missing order.
    const Completion written = first->run([&value] {
      value = 1;
      return Outcome{};
    });
    second->wait_for(written);
    int seen = 0;
    second
        ->run([&] {
          seen = value;
          return Outcome{};
        })
        .wait();
    EXPECT_EQ(seen, 1);
  }
}

TEST_P(DeviceConformance, HandsFailuresOnAsValues) {
  const auto queue = device_->make_queue("test");
  const Completion failed = queue->run([] { return Outcome{"link down"}; });
  const Completion thrown = queue->run([]() -> Outcome { throw std::runtime_error("no memory"); });
  EXPECT_EQ(failed.wait().error, "link down");
  EXPECT_EQ(thrown.wait().error, "no memory");
  EXPECT_TRUE(queue->run([] { return Outcome{}; }).wait().succeeded());
}

TEST_P(DeviceConformance, EndsItsWorkBeforeItDies) {
  std::atomic<int> done{0};
  {
    const auto queue = device_->make_queue("test");
    for (int i = 0; i < 100; ++i) {
      queue->run([&done] {
        ++done;
        return Outcome{};
      });
    }
  }
  EXPECT_EQ(done.load(), 100);
}

TEST_P(DeviceConformance, TellsItsMemory) {
  EXPECT_GT(device_->memory().total, Bytes());
  EXPECT_LE(device_->memory().free, device_->memory().total);
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceConformance,
                         testing::Values(Backend{"cpu", &make_cpu_device}),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace spillway::device
