#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "drawn_messages.h"

namespace spillway::transport {

/// What every transport must do. A backend joins with a fixture that has
///   void run(const std::function<void(Transport&)>& body);  // on each of at least two ranks
///   void start(std::function<void()> work);  // inside of it: another thread of this rank
///   Rank rank_in_job(Rank rank) const;  // if errors name it by another number
/// and `INSTANTIATE_TYPED_TEST_SUITE_P(Name, TransportConformance, Fixture)`.
template <typename Fixture>
class TransportConformance : public ::testing::Test {
 protected:
  Fixture ranks_;
};

/// As errors write it.
template <typename Fixture>
Rank rank_in_job(const Fixture& ranks, Rank rank) {
  if constexpr (requires { ranks.rank_in_job(rank); }) return ranks.rank_in_job(rank);
  return rank;
}

TYPED_TEST_SUITE_P(TransportConformance);

TYPED_TEST_P(TransportConformance, CarriesBytesOfAllSizesBetweenAllRanks) {
  const std::vector<std::size_t> sizes{0, 1, 7, 4096, 65537, (1u << 20) + 3};
  this->ranks_.run([&](Transport& transport) {
    struct Message {
      std::vector<std::byte> bytes, expected;
      device::Event event;
    };
    std::vector<Message> out, in;
    for (std::uint32_t i = 0; i < transport.ranks(); ++i) {
      const Rank peer(i);
      if (peer == transport.rank()) continue;
      for (std::size_t k = 0; k < sizes.size(); ++k) {
        out.push_back({drawn_bytes(sizes[k], seed_of(transport.rank(), peer, k)), {}, {}});
        in.push_back({std::vector<std::byte>(sizes[k]),
                      drawn_bytes(sizes[k], seed_of(peer, transport.rank(), k)),
                      {}});
        out.back().event = transport.send(peer, value(k), span_of(out.back().bytes));
        in.back().event = transport.receive(peer, value(k), span_of(in.back().bytes));
      }
    }
    for (const Message& message : in) {
      expect_success(message.event);
      EXPECT_TRUE(message.event.is_done());
      EXPECT_EQ(message.bytes, message.expected);
    }
    for (const Message& message : out) expect_success(message.event);
  });
}

TYPED_TEST_P(TransportConformance, MatchesByTagInWhicheverOrderTheyArePosted) {
  constexpr std::uint64_t kCount = 100;
  run_pair(
      this->ranks_,
      [](Transport& transport) {
        std::vector<std::vector<std::byte>> bytes;
        std::vector<device::Event> sent;
        for (std::uint64_t i = 0; i < kCount; ++i) bytes.push_back(drawn_bytes(100 + i, i));
        for (std::uint64_t i = 0; i < kCount; ++i)
          sent.push_back(transport.send(Rank(1), value(i), span_of(bytes[i])));
        for (const device::Event& event : sent) expect_success(event);
      },
      [](Transport& transport) {
        for (std::uint64_t i = kCount; i-- > 0;) {
          std::vector<std::byte> bytes(100 + i);
          expect_success(transport.receive(Rank(0), value(i), span_of(bytes)));
          EXPECT_EQ(bytes, drawn_bytes(100 + i, i));
        }
      });
}

TYPED_TEST_P(TransportConformance, KeepsStreamsAndLargeNumbersApart) {
  const std::vector<std::uint64_t> numbers{0, 1, 1ull << 31, (1ull << 31) + 1, 1ull << 40};
  std::vector<Tag> tags;
  for (std::size_t stream = 0; stream < kStreams; ++stream)
    for (const std::uint64_t number : numbers)
      tags.push_back({static_cast<Stream>(stream), number});
  run_pair(
      this->ranks_,
      [&](Transport& transport) {
        std::vector<std::vector<std::byte>> bytes;
        std::vector<device::Event> sent;
        for (std::size_t i = 0; i < tags.size(); ++i) bytes.push_back(drawn_bytes(64, i));
        for (std::size_t i = 0; i < tags.size(); ++i)
          sent.push_back(transport.send(Rank(1), tags[i], span_of(bytes[i])));
        for (const device::Event& event : sent) expect_success(event);
      },
      [&](Transport& transport) {
        std::vector<std::vector<std::byte>> bytes(tags.size(), std::vector<std::byte>(64));
        std::vector<device::Event> received(tags.size());
        for (std::size_t i = tags.size(); i-- > 0;)
          received[i] = transport.receive(Rank(0), tags[i], span_of(bytes[i]));
        for (std::size_t i = 0; i < tags.size(); ++i) {
          expect_success(received[i]);
          EXPECT_EQ(bytes[i], drawn_bytes(64, i)) << tags[i];
        }
      });
}

TYPED_TEST_P(TransportConformance, TakesATagAgainOnceBothHaveSeenItsEnd) {
  run_pair(
      this->ranks_,
      [](Transport& transport) {
        for (std::uint64_t i = 0; i < 20; ++i) {
          auto bytes = drawn_bytes(1000, i);
          std::vector<std::byte> answer(1);
          expect_success(transport.send(Rank(1), value(3), span_of(bytes)));
          expect_success(transport.receive(Rank(1), value(3), span_of(answer)));
        }
      },
      [](Transport& transport) {
        for (std::uint64_t i = 0; i < 20; ++i) {
          std::vector<std::byte> bytes(1000), answer(1);
          expect_success(transport.receive(Rank(0), value(3), span_of(bytes)));
          EXPECT_EQ(bytes, drawn_bytes(1000, i));
          expect_success(transport.send(Rank(0), value(3), span_of(answer)));
        }
      });
}

TYPED_TEST_P(TransportConformance, RefusesATagThatIsStillInUse) {
  const std::string name =
      message("value 1 from rank {} to rank {}", rank_in_job(this->ranks_, Rank(0)),
              rank_in_job(this->ranks_, Rank(1)));
  run_pair(
      this->ranks_,
      [](Transport& transport) {
        std::vector<std::byte> begin(1), bytes(8);
        expect_success(transport.receive(Rank(1), value(0), span_of(begin)));
        expect_success(transport.send(Rank(1), value(1), span_of(bytes)));
      },
      [&](Transport& transport) {
        std::vector<std::byte> begin(1), bytes(8);
        const device::Event received = transport.receive(Rank(0), value(1), span_of(bytes));
        try {
          transport.receive(Rank(0), value(1), span_of(bytes));
          ADD_FAILURE();
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), ::testing::HasSubstr(name));
        }
        expect_success(transport.send(Rank(0), value(0), span_of(begin)));
        expect_success(received);
      });
}

TYPED_TEST_P(TransportConformance, TellsOfASizeThatIsNotTheExpectedOne) {
  const std::string name = message("value 5 from rank {}", rank_in_job(this->ranks_, Rank(0)));
  for (const std::size_t expected : {4u, 16u}) {
    run_pair(
        this->ranks_,
        [](Transport& transport) {
          auto bytes = drawn_bytes(8, 1);
          transport.send(Rank(1), value(5), span_of(bytes)).wait();
        },
        [&](Transport& transport) {
          std::vector<std::byte> bytes(expected);
          const device::Outcome outcome =
              transport.receive(Rank(0), value(5), span_of(bytes)).wait();
          EXPECT_THAT(outcome.error,
                      ::testing::AllOf(::testing::HasSubstr(name),
                                       ::testing::HasSubstr(message("{}", expected))));
        });
  }
}

TYPED_TEST_P(TransportConformance, RefusesRanksThatDoNotExistAndItself) {
  this->ranks_.run([](Transport& transport) {
    std::vector<std::byte> bytes(8);
    for (const Rank wrong : {Rank(), Rank(transport.ranks()), transport.rank()}) {
      EXPECT_THROW(transport.send(wrong, value(1), span_of(bytes)), Error) << wrong;
      EXPECT_THROW(transport.receive(wrong, value(1), span_of(bytes)), Error) << wrong;
    }
  });
}

TYPED_TEST_P(TransportConformance, LetsAllExchangeMuchAtOnce) {
  constexpr std::size_t kSize = 8u << 20;
  this->ranks_.run([](Transport& transport) {
    const Rank next((transport.rank().value() + 1) % transport.ranks());
    const Rank before((transport.rank().value() + transport.ranks() - 1) % transport.ranks());
    auto out = drawn_bytes(kSize, transport.rank().value());
    std::vector<std::byte> in(kSize);
    const device::Event sent = transport.send(next, value(0), span_of(out));
    expect_success(transport.receive(before, value(0), span_of(in)));
    expect_success(sent);
    EXPECT_EQ(in, drawn_bytes(kSize, before.value()));
  });
}

TYPED_TEST_P(TransportConformance, TellsTheTimeBetweenTwoMessages) {
  run_pair(
      this->ranks_,
      [](Transport& transport) {
        std::vector<std::byte> bytes(8);
        expect_success(transport.send(Rank(1), value(1), span_of(bytes)));
        expect_success(transport.send(Rank(1), value(2), span_of(bytes)));
      },
      [](Transport& transport) {
        std::vector<std::byte> bytes(8);
        const device::Event first = transport.receive(Rank(0), value(1), span_of(bytes));
        first.wait();
        const device::Event second = transport.receive(Rank(0), value(2), span_of(bytes));
        second.wait();
        EXPECT_GE(device::elapsed(first, second), Duration(0));
      });
}

REGISTER_TYPED_TEST_SUITE_P(TransportConformance, CarriesBytesOfAllSizesBetweenAllRanks,
                            MatchesByTagInWhicheverOrderTheyArePosted,
                            KeepsStreamsAndLargeNumbersApart, TakesATagAgainOnceBothHaveSeenItsEnd,
                            RefusesATagThatIsStillInUse, TellsOfASizeThatIsNotTheExpectedOne,
                            RefusesRanksThatDoNotExistAndItself, LetsAllExchangeMuchAtOnce,
                            TellsTheTimeBetweenTwoMessages);

}  // namespace spillway::transport
