#include "spillway/transport/in_process.h"

#include <stdexcept>
#include <string>
#include <thread>

#include "drawn_messages.h"
#include "notifier_conformance.h"
#include "support/golden_part.h"
#include "transport_conformance.h"

namespace spillway::transport {
namespace {

using ::testing::HasSubstr;

constexpr Duration kLatency = std::chrono::microseconds(2);
constexpr Duration kDelay = std::chrono::milliseconds(1);

InProcessOptions quick() { return {.ranks = 3, .latency = kLatency}; }
InProcessOptions delayed() {
  return {
      .ranks = 4, .seed = 7, .latency = kLatency, .most_delay = kDelay, .bytes_per_second = 1e9};
}
InProcessOptions waiting() {
  InProcessOptions options = delayed();
  options.sends_wait = true;
  return options;
}

/// Runs each body anew under one kind of network.
template <InProcessOptions (*options)()>
class Ranks {
 public:
  void run(const InProcessRanks::Body& body) {
    InProcessRanks ranks(options());
    running_ = &ranks;
    ranks.run(body);
  }
  void start(std::function<void()> work) { running_->start(std::move(work)); }

 private:
  InProcessRanks* running_ = nullptr;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Quick, TransportConformance, Ranks<&quick>);
INSTANTIATE_TYPED_TEST_SUITE_P(Delayed, TransportConformance, Ranks<&delayed>);
INSTANTIATE_TYPED_TEST_SUITE_P(SendsWait, TransportConformance, Ranks<&waiting>);
INSTANTIATE_TYPED_TEST_SUITE_P(Quick, NotifierConformance, Ranks<&quick>);
INSTANTIATE_TYPED_TEST_SUITE_P(Delayed, NotifierConformance, Ranks<&delayed>);
INSTANTIATE_TYPED_TEST_SUITE_P(SendsWait, NotifierConformance, Ranks<&waiting>);

/// What `run` throws; empty: nothing.
std::string failure_of(const InProcessOptions& options, const InProcessRanks::Body& body) {
  InProcessRanks ranks(options);
  try {
    ranks.run(body);
  } catch (const TransportError& error) {
    return error.what();
  }
  return {};
}

/// Each rank sends to each, and all note in which order what arrives.
std::vector<std::uint32_t> arrivals(const InProcessOptions& options) {
  std::vector<std::uint32_t> order;
  InProcessRanks ranks(options);
  ranks.run([&](Transport& transport) {
    std::vector<std::byte> bytes(1), in(1);
    std::vector<device::Event> events;
    for (std::uint64_t number = 0; number < 8; ++number)
      for (std::uint32_t i = 0; i < transport.ranks(); ++i)
        if (Rank(i) != transport.rank()) {
          events.push_back(transport.send(Rank(i), value(number), span_of(bytes)));
          events.push_back(transport.receive(Rank(i), value(number), span_of(in)));
        }
    const auto notifier = transport.make_notifier();
    std::vector<bool> seen(events.size());
    std::size_t left = events.size();
    while (left > 0) {
      for (std::size_t i = 0; i < events.size(); ++i) {
        if (seen[i] || !events[i].is_done()) continue;
        seen[i] = true;
        --left;
        order.push_back(transport.rank().value() * 1000 + static_cast<std::uint32_t>(i));
      }
      if (left > 0) notifier->wait();
    }
  });
  return order;
}

TEST(InProcessRanks, DoTheSameForTheSameSeedAndOtherThingsForOthers) {
  const std::vector<std::uint32_t> once = arrivals(delayed());
  EXPECT_EQ(once, arrivals(delayed()));
  InProcessOptions other = delayed();
  other.seed = 8;
  EXPECT_NE(once, arrivals(other));
}

TEST(InProcessRanks, LetLaterMessagesOvertakeEarlierOnes) {
  bool overtook = false;
  InProcessRanks ranks({.ranks = 2, .most_delay = kDelay});
  ranks.run([&](Transport& transport) {
    std::vector<std::byte> bytes(1);
    std::vector<device::Event> events;
    for (std::uint64_t i = 0; i < 20; ++i)
      events.push_back(transport.rank() == Rank(0)
                           ? transport.send(Rank(1), value(i), span_of(bytes))
                           : transport.receive(Rank(0), value(i), span_of(bytes)));
    for (const device::Event& event : events) event.wait();
    if (transport.rank() == Rank(0)) return;
    for (std::size_t i = 1; i < events.size(); ++i)
      overtook |= device::elapsed(events[i - 1], events[i]) < Duration(0);
  });
  EXPECT_TRUE(overtook);
}

TEST(InProcessRanks, TakeTheTimeOfLatencyAndLinkAndWork) {
  using std::chrono::seconds;
  InProcessRanks ranks({.ranks = 3, .latency = seconds(1), .bytes_per_second = 100});
  std::vector<Duration> ends(3);
  ranks.run([&](Transport& transport) {
    std::vector<std::byte> bytes(200), other(200), third(200);
    if (transport.rank() == Rank(0)) {
      ranks.work(seconds(10));
      // Two on one link, one on another.
      transport.send(Rank(1), value(0), span_of(bytes));
      transport.send(Rank(1), value(1), span_of(other));
      transport.send(Rank(2), value(0), span_of(third));
    } else if (transport.rank() == Rank(1)) {
      transport.receive(Rank(0), value(1), span_of(other)).wait();
      transport.receive(Rank(0), value(0), span_of(bytes)).wait();
    } else {
      transport.receive(Rank(0), value(0), span_of(third)).wait();
    }
    ends[transport.rank().value()] = ranks.clock().now().time_since_epoch();
  });
  EXPECT_EQ(ends, (std::vector<Duration>{seconds(10), seconds(15), seconds(13)}));
}

TEST(InProcessRanks, WaitWithTheirSendsWhereTheNetworkHasNoBuffers) {
  using std::chrono::seconds;
  Duration sent_at{0};
  InProcessRanks ranks({.ranks = 2, .sends_wait = true});
  ranks.run([&](Transport& transport) {
    std::vector<std::byte> bytes(8);
    if (transport.rank() == Rank(0)) {
      transport.send(Rank(1), value(0), span_of(bytes)).wait();
      sent_at = ranks.clock().now().time_since_epoch();
    } else {
      ranks.work(seconds(3));
      transport.receive(Rank(0), value(0), span_of(bytes)).wait();
    }
  });
  EXPECT_EQ(sent_at, seconds(3));
}

TEST(InProcessRanks, AreToldWhereAllWaitForOneAnother) {
  GoldenPart golden;
  const std::string failure = failure_of({.ranks = 3}, [](Transport& transport) {
    std::vector<std::byte> bytes(8);
    const Rank before((transport.rank().value() + 2) % 3);
    transport.receive(before, value(transport.rank().value()), span_of(bytes)).wait();
  });
  golden.add(failure);
}

TEST(InProcessRanks, AreToldWhereSendsWaitForOneAnother) {
  GoldenPart golden;
  const auto body = [](Transport& transport) {
    std::vector<std::byte> bytes(8);
    const Rank peer(1 - transport.rank().value());
    transport.send(peer, value(0), span_of(bytes)).wait();
    transport.receive(peer, value(0), span_of(bytes)).wait();
  };
  EXPECT_EQ(failure_of({.ranks = 2}, body), "");
  golden.add(failure_of({.ranks = 2, .sends_wait = true}, body));
}

TEST(InProcessRanks, AreToldWhereSomebodyAsksForEver) {
  GoldenPart golden;
  golden.add(failure_of({.ranks = 2}, [](Transport& transport) {
    std::vector<std::byte> bytes(8);
    if (transport.rank() == Rank(1)) return;
    const device::Event never = transport.receive(Rank(1), value(0), span_of(bytes));
    while (!never.is_done()) {
    }
  }));
}

TEST(InProcessRanks, AreToldOfAMessageThatNobodyReceives) {
  GoldenPart golden;
  golden.add(failure_of({.ranks = 2}, [](Transport& transport) {
    std::vector<std::byte> bytes(8);
    if (transport.rank() == Rank(0)) transport.send(Rank(1), value(9), span_of(bytes)).wait();
  }));
}

TEST(InProcessRanks, EndTogetherWhereOneFails) {
  InProcessRanks ranks({.ranks = 3});
  EXPECT_THROW(ranks.run([](Transport& transport) {
    std::vector<std::byte> bytes(8);
    if (transport.rank() == Rank(2)) throw std::out_of_range("no such layer");
    transport.receive(Rank(2), value(0), span_of(bytes)).wait();
  }),
               std::out_of_range);
}

TEST(InProcessRanks, EndTogetherWhereOneEndsTheJob) {
  GoldenPart().add(failure_of({.ranks = 3}, [](Transport& transport) {
    if (transport.rank() == Rank(1)) transport.abort("programs differ");
    transport.make_notifier()->wait();
    ADD_FAILURE();
  }));
}

/// Tokens go around a ring, until a rank has died.
void pass_tokens(Transport& transport, int rounds) {
  const std::uint32_t me = transport.rank().value();
  const Rank next((me + 1) % transport.ranks());
  const Rank before((me + transport.ranks() - 1) % transport.ranks());
  for (int round = 0; round < rounds; ++round) {
    const Tag tag = value(static_cast<std::uint64_t>(round));
    std::vector<std::byte> in(4), out(4);
    const device::Event sent = transport.send(next, tag, span_of(out));
    for (const device::Event& event : {transport.receive(before, tag, span_of(in)), sent}) {
      const device::Outcome outcome = event.wait();
      if (!outcome.succeeded()) transport.abort(outcome.error);
    }
  }
}

TEST(InProcessRanks, AreToldOfADeathAtWhicheverMoment) {
  constexpr int kRounds = 5;
  constexpr std::uint64_t kVerbs = 4 * kRounds;  // At most, of a rank.
  for (const bool sends_wait : {false, true}) {
    for (std::uint64_t after = 0; after <= kVerbs; ++after) {
      const std::string failure =
          failure_of({.ranks = 3,
                      .seed = after,
                      .most_delay = kDelay,
                      .sends_wait = sends_wait,
                      .death = InProcessOptions::Death{Rank(1), after}},
                     [](Transport& transport) { pass_tokens(transport, kRounds); });
      if (after == kVerbs) {
        EXPECT_EQ(failure, "");
      } else if (after < 2 * kRounds) {
        EXPECT_THAT(failure, HasSubstr("rank 1 has died")) << after;
      }
    }
  }
}

TEST(InProcessRanks, RefuseToWaitForThreadsThatTheyDoNotKnow) {
  Ranks<&quick> ranks;
  run_pair(
      ranks,
      [](Transport& transport) {
        std::vector<std::byte> bytes(8);
        const device::Event received = transport.receive(Rank(1), value(0), span_of(bytes));
        std::thread([&] { EXPECT_THROW(received.wait(), TransportError); }).join();
        transport.send(Rank(1), value(1), span_of(bytes));
        expect_success(received);
      },
      [](Transport& transport) {
        std::vector<std::byte> bytes(8);
        expect_success(transport.receive(Rank(0), value(1), span_of(bytes)));
        expect_success(transport.send(Rank(0), value(0), span_of(bytes)));
      });
}

}  // namespace
}  // namespace spillway::transport
