#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "device_conformance.h"
#include "spillway/base/error.h"
#include "spillway/device/cpu.h"

namespace spillway::device {

/// What queues and events of every device must do. How a backend joins: device_conformance.h.
template <typename Fixture>
class QueueConformance : public DeviceCase<Fixture> {};

TYPED_TEST_SUITE_P(QueueConformance);

TYPED_TEST_P(QueueConformance, RunsTheWorkOfOneQueueInOrder) {
  std::vector<int> order;
  const auto queue = this->device_->make_queue("test");
  for (int i = 0; i < 1000; ++i) {
    queue->run([&order, i] {
      order.push_back(i);
      return Outcome{};
    });
  }
  queue->record().wait();
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TYPED_TEST_P(QueueConformance, RunsTwoQueuesAtTheSameTime) {
  const auto first = this->device_->make_queue("first");
  const auto second = this->device_->make_queue("second");
  std::vector<std::byte> sent = this->pattern(TestFixture::kSize.count(), 13);
  const DeviceMemory memory = this->device_->allocate(TestFixture::kSize);
  std::promise<void> opened;
  first->run([gate = opened.get_future().share()] {
    gate.wait();
    return Outcome{};
  });
  const Event held = first->record();
  second->copy(memory.span(), this->span_of(sent));
  // Ends only if the second queue runs meanwhile.
  EXPECT_TRUE(second->record().wait().succeeded());
  EXPECT_FALSE(held.is_done());
  opened.set_value();
  EXPECT_TRUE(held.wait().succeeded());
}

TYPED_TEST_P(QueueConformance, AnEventIsDoneOnceAllBeforeItHasEnded) {
  const auto queue = this->device_->make_queue("test");
  std::promise<void> opened;
  queue->run([gate = opened.get_future().share()] {
    gate.wait();
    return Outcome{};
  });
  const Event behind = queue->record();
  const Event copy = behind;
  EXPECT_FALSE(behind.is_done());
  opened.set_value();
  EXPECT_TRUE(behind.wait().succeeded());
  EXPECT_TRUE(behind.is_done());
  EXPECT_TRUE(copy.is_done());
}

TYPED_TEST_P(QueueConformance, AnEventOfAnIdleQueueIsReached) {
  const auto queue = this->device_->make_queue("test");
  EXPECT_TRUE(queue->record().wait().succeeded());
  EXPECT_TRUE(Event().is_done());
  EXPECT_TRUE(Event().wait().succeeded());
  queue->wait(Event());
  EXPECT_TRUE(queue->record().wait().succeeded());
}

TYPED_TEST_P(QueueConformance, AnEventOutlivesItsQueue) {
  Event event;
  {
    const auto queue = this->device_->make_queue("test");
    queue->run([] { return Outcome{"link down"}; });
    event = queue->record();
  }
  EXPECT_TRUE(event.is_done());
  EXPECT_EQ(event.wait().error, "link down");
}

TYPED_TEST_P(QueueConformance, OrdersQueuesWithoutTheHost) {
  const auto first = this->device_->make_queue("first");
  const auto second = this->device_->make_queue("second");
  for (int round = 0; round < 200; ++round) {
    int value = 0;  // Not atomic: the thread sanitizer sees a missing order.
    std::promise<void> opened;
    first->run([&value, gate = opened.get_future().share()] {
      gate.wait();
      value = 1;
      return Outcome{};
    });
    // A wait that held up the host would never come to the opening of the gate.
    second->wait(first->record());
    int seen = 0;
    second->run([&] {
      seen = value;
      return Outcome{};
    });
    opened.set_value();
    second->record().wait();
    EXPECT_EQ(seen, 1);
  }
}

TYPED_TEST_P(QueueConformance, HandsFailuresOnAsValuesOnce) {
  const auto queue = this->device_->make_queue("test");
  queue->run([] { return Outcome{"link down"}; });
  queue->run([] { return Outcome{"a later failure"}; });
  const Event failed = queue->record();
  queue->run([]() -> Outcome { throw std::runtime_error("no memory"); });
  const Event thrown = queue->record();
  int runs = 0;
  queue->run([&runs] {
    ++runs;
    return Outcome{};
  });
  EXPECT_TRUE(queue->record().wait().succeeded());
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(failed.wait().error, "link down");
  EXPECT_EQ(thrown.wait().error, "no memory");
}

TYPED_TEST_P(QueueConformance, TellsTheTimeBetweenEvents) {
  const auto queue = this->device_->make_queue("test");
  const auto other = this->device_->make_queue("other");
  const Event first = queue->record(Timing::kKept);
  other->wait(first);
  const Event second = other->record(Timing::kKept);
  second.wait();
  EXPECT_GE(elapsed(first, second), Duration(0));
  EXPECT_LE(elapsed(second, first), Duration(0));
  EXPECT_EQ(elapsed(first, first), Duration(0));
}

TYPED_TEST_P(QueueConformance, TellsNoTimeThatIsNotKnown) {
  const auto queue = this->device_->make_queue("test");
  const Event first = queue->record(Timing::kKept);
  std::promise<void> opened;
  queue->run([gate = opened.get_future().share()] {
    gate.wait();
    return Outcome{};
  });
  const Event second = queue->record(Timing::kKept);
  EXPECT_THROW(elapsed(first, second), Error);
  EXPECT_THROW(elapsed(Event(), first), Error);
  opened.set_value();
}

TYPED_TEST_P(QueueConformance, KeepsTheTimeOfEventsThatAreAskedTo) {
  const auto queue = this->device_->make_queue("test");
  const Event timed = queue->record(Timing::kKept);
  const Event untimed = queue->record();
  untimed.wait();
  EXPECT_THROW(elapsed(timed, untimed), Error);
  EXPECT_THROW(elapsed(untimed, timed), Error);
}

TYPED_TEST_P(QueueConformance, EndsItsWorkBeforeItDies) {
  std::atomic<int> done{0};
  {
    const auto queue = this->device_->make_queue("test");
    for (int i = 0; i < 100; ++i) {
      queue->run([&done] {
        ++done;
        return Outcome{};
      });
    }
  }
  EXPECT_EQ(done.load(), 100);
}

REGISTER_TYPED_TEST_SUITE_P(QueueConformance, RunsTheWorkOfOneQueueInOrder,
                            RunsTwoQueuesAtTheSameTime, AnEventIsDoneOnceAllBeforeItHasEnded,
                            AnEventOfAnIdleQueueIsReached, AnEventOutlivesItsQueue,
                            OrdersQueuesWithoutTheHost, HandsFailuresOnAsValuesOnce,
                            TellsTheTimeBetweenEvents, TellsNoTimeThatIsNotKnown,
                            KeepsTheTimeOfEventsThatAreAskedTo, EndsItsWorkBeforeItDies);

/// Queues of `device` and of the host run in turns.
inline void expect_to_wait_for_queues_of_the_host(Device& device) {
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
  EXPECT_TRUE(last.wait().succeeded());
  EXPECT_EQ(value, 15);
  EXPECT_THROW(elapsed(theirs->record(Timing::kKept), last), Error);
}

}  // namespace spillway::device
