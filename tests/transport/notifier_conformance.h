#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "drawn_messages.h"

namespace spillway::transport {

/// What the notifiers of every transport must do. How a backend joins: transport_conformance.h.
template <typename Fixture>
class NotifierConformance : public ::testing::Test {
 protected:
  Fixture ranks_;
};

TYPED_TEST_SUITE_P(NotifierConformance);

TYPED_TEST_P(NotifierConformance, NotifiesWhoWaitsForMessages) {
  run_pair(
      this->ranks_,
      [](Transport& transport) {
        std::vector<std::byte> bytes(8);
        for (std::uint64_t i = 0; i < 10; ++i)
          expect_success(transport.send(Rank(1), value(i), span_of(bytes)));
      },
      [](Transport& transport) {
        const auto notifier = transport.make_notifier();
        std::vector<std::byte> bytes(8);
        for (std::uint64_t i = 0; i < 10; ++i) {
          const device::Event received = transport.receive(Rank(0), value(i), span_of(bytes));
          while (!received.is_done()) EXPECT_TRUE(notifier->wait());
        }
      });
}

TYPED_TEST_P(NotifierConformance, NotifiesOfOneStreamWhereThatIsAskedFor) {
  run_pair(
      this->ranks_,
      [](Transport& transport) {
        std::vector<std::byte> bytes(8);
        expect_success(transport.send(Rank(1), value(0), span_of(bytes)));
        expect_success(transport.send(Rank(1), {Stream::kRequests, 0}, span_of(bytes)));
      },
      [](Transport& transport) {
        const auto of_all = transport.make_notifier();
        const auto of_values = transport.make_notifier(Stream::kValues);
        const auto of_requests = transport.make_notifier(Stream::kRequests);
        std::vector<std::byte> bytes(8), other(8);
        const device::Event first = transport.receive(Rank(0), value(0), span_of(bytes));
        while (!first.is_done()) EXPECT_TRUE(of_values->wait());
        const device::Event second =
            transport.receive(Rank(0), {Stream::kRequests, 0}, span_of(other));
        while (!second.is_done()) EXPECT_TRUE(of_requests->wait());
        EXPECT_TRUE(of_all->wait());
      });
}

TYPED_TEST_P(NotifierConformance, DoesNotNotifyOfOtherStreams) {
  run_pair(
      this->ranks_,
      [](Transport& transport) {
        std::vector<std::byte> bytes(8);
        expect_success(transport.send(Rank(1), value(0), span_of(bytes)));
      },
      [](Transport& transport) {
        const auto of_requests = transport.make_notifier(Stream::kRequests);
        std::vector<std::byte> bytes(8);
        expect_success(transport.receive(Rank(0), value(0), span_of(bytes)));
        EXPECT_FALSE(of_requests->wait(TimePoint{}));
      });
}

TYPED_TEST_P(NotifierConformance, NotifiesFromAnotherThreadOfTheRank) {
  this->ranks_.run([&](Transport& transport) {
    // The thread has a part in them: it may still be notifying when the body ends.
    const std::shared_ptr<Notifier> asked = transport.make_notifier();
    const std::shared_ptr<Notifier> answered = transport.make_notifier();
    std::atomic<int> number{0};
    this->ranks_.start([&number, asked, answered] {
      while (number.load() == 0) asked->wait();
      number.store(2);
      answered->notify();
    });
    number.store(1);
    asked->notify();
    while (number.load() != 2) answered->wait();
  });
}

TYPED_TEST_P(NotifierConformance, TakesNotificationsOnce) {
  this->ranks_.run([](Transport& transport) {
    // Of a stream without messages: a transport's own ones may end meanwhile, which one of all
    // streams is told.
    const auto notifier = transport.make_notifier(Stream::kValues);
    notifier->notify();
    notifier->notify();
    EXPECT_TRUE(notifier->wait());
    EXPECT_FALSE(notifier->wait(TimePoint{}));
  });
}

REGISTER_TYPED_TEST_SUITE_P(NotifierConformance, NotifiesWhoWaitsForMessages,
                            NotifiesOfOneStreamWhereThatIsAskedFor, DoesNotNotifyOfOtherStreams,
                            NotifiesFromAnotherThreadOfTheRank, TakesNotificationsOnce);

}  // namespace spillway::transport
