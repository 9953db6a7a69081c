#include "spillway/transport/survey/link_survey.h"

#include <gmock/gmock.h>

#include <set>

#include "spillway/transport/in_process.h"
#include "spillway/transport/survey/texts.h"

namespace spillway::transport {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::seconds;
using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

/// A wall clock that differs from that of other hosts.
class AheadClock final : public Clock {
 public:
  AheadClock(const Clock& clock, Duration ahead) : clock_(clock), ahead_(ahead) {}
  TimePoint now() const override { return clock_.now() + ahead_; }

 private:
  const Clock& clock_;
  const Duration ahead_;
};

std::vector<MeasuredLink> surveyed(const InProcessOptions& network,
                                   const std::vector<std::string>& hosts,
                                   const std::vector<Duration>& ahead,
                                   const SurveyOptions& options = {}) {
  std::vector<MeasuredLink> links;
  InProcessRanks ranks(network);
  ranks.run([&](Transport& transport) {
    const AheadClock wall(ranks.clock(), ahead[transport.rank().value()]);
    auto found = survey_links(transport, hosts, {ranks.clock(), wall}, options);
    if (transport.rank() == Rank(0))
      links = std::move(found);
    else
      EXPECT_THAT(found, IsEmpty());
  });
  return links;
}

TEST(SurveyRounds, OfOneRankAreNone) { EXPECT_THAT(survey_rounds({"a"}), IsEmpty()); }

TEST(SurveyRounds, OfOneHostAreNeighboursFromTheLastPairOn) {
  EXPECT_THAT(survey_rounds({"a", "a", "a"}),
              ElementsAre(ElementsAre(Pair(1, 2)), ElementsAre(Pair(0, 1))));
}

TEST(SurveyRounds, MeasureHostsBehindTheirRanks) {
  EXPECT_THAT(survey_rounds({"a", "b", "a", "b"}),
              ElementsAre(ElementsAre(Pair(0, 2), Pair(1, 3)), ElementsAre(Pair(0, 1))));
}

TEST(SurveyRounds, BringEachPairOfHostsTogetherOnceAndNoHostIntoTwoPairsAtOnce) {
  for (std::uint32_t count = 2; count <= 9; ++count) {
    std::vector<std::string> hosts;
    for (std::uint32_t i = 0; i < count; ++i) hosts.push_back("host" + std::to_string(i));
    const auto rounds = survey_rounds(hosts);
    EXPECT_THAT(rounds, SizeIs(count - 1 + count % 2));
    std::set<RankPair> met;
    for (const auto& round : rounds) {
      std::set<std::uint32_t> busy;
      for (const RankPair& pair : round) {
        EXPECT_LT(pair.first, pair.second);
        EXPECT_TRUE(met.insert(pair).second);
        EXPECT_TRUE(busy.insert(pair.first).second);
        EXPECT_TRUE(busy.insert(pair.second).second);
      }
    }
    EXPECT_THAT(met, SizeIs(count * (count - 1) / 2));
  }
}

TEST(SurveyLinks, FindTheFiguresOfTheNetwork) {
  const InProcessOptions network{.ranks = 4, .latency = microseconds(10), .bytes_per_second = 1e9};
  const std::vector<Duration> ahead{seconds(5), seconds(5), seconds(3), hours(30)};
  const auto links = surveyed(network, {"a", "a", "b", "c"}, ahead);
  ASSERT_THAT(links, SizeIs(4));
  const std::vector<RankPair> pairs{{0, 1}, {0, 2}, {0, 3}, {2, 3}};
  for (std::size_t i = 0; i < links.size(); ++i) {
    EXPECT_EQ(RankPair(links[i].from, links[i].to), pairs[i]);
    EXPECT_THAT(links[i].latency_seconds, DoubleNear(10e-6, 0.1e-6));
    EXPECT_THAT(links[i].rate.bytes_per_second(), DoubleNear(1e9, 1e7));
    const double truth = spillway::seconds(ahead[links[i].to] - ahead[links[i].from]);
    EXPECT_THAT(links[i].clock_offset_seconds, DoubleNear(truth, 1e-6));
    EXPECT_THAT(links[i].clock_error_seconds, DoubleNear(10e-6, 0.1e-6));
  }
}

TEST(SurveyLinks, KnowHowWrongTheyAreAboutClocks) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const InProcessOptions network{.ranks = 2,
                                   .seed = seed,
                                   .latency = microseconds(10),
                                   .most_delay = microseconds(500),
                                   .bytes_per_second = 1e9};
    const auto links = surveyed(network, {"a", "b"}, {seconds(0), seconds(7)});
    ASSERT_THAT(links, SizeIs(1));
    EXPECT_LE(std::abs(links[0].clock_offset_seconds - 7.0), links[0].clock_error_seconds + 1e-9);
    EXPECT_LE(links[0].clock_error_seconds, links[0].latency_seconds);
  }
}

TEST(SurveyLinks, SendLessOverASlowLink) {
  const InProcessOptions network{.ranks = 2, .latency = microseconds(10), .bytes_per_second = 1e7};
  InProcessRanks ranks(network);
  double rate = 0.0;
  Duration end{0};
  ranks.run([&](Transport& transport) {
    const auto links = survey_links(transport, {"a", "b"}, {ranks.clock(), ranks.clock()});
    if (transport.rank() != Rank(0)) return;
    rate = links.at(0).rate.bytes_per_second();
    end = ranks.clock().now().time_since_epoch();
  });
  EXPECT_THAT(rate, DoubleNear(1e7, 1e5));
  // Of 4 MiB, the ten messages would take 4.2 s.
  EXPECT_LT(end, std::chrono::milliseconds(250));
}

TEST(SurveyLinks, DoWithoutBuffersOfTheNetwork) {
  const auto links = surveyed({.ranks = 3, .latency = microseconds(1), .sends_wait = true},
                              {"a", "a", "b"}, {seconds(0), seconds(0), seconds(0)});
  EXPECT_THAT(links, SizeIs(2));
}

TEST(GatherTexts, BringsThoseOfAllRanksToTheFirst) {
  InProcessRanks ranks({.ranks = 3});
  ranks.run([&](Transport& transport) {
    const std::uint32_t rank = transport.rank().value();
    const auto all = gather_texts(transport, std::string(rank * 5000, 'x'));
    if (rank != 0)
      EXPECT_THAT(all, IsEmpty());
    else
      EXPECT_THAT(all, ElementsAre("", std::string(5000, 'x'), std::string(10000, 'x')));
    EXPECT_EQ(number_of_first_rank(transport, rank + 4), 4u);
  });
}

TEST(NumberForThisRank, IsItsOwnTimeAndAgain) {
  InProcessRanks ranks({.ranks = 3, .sends_wait = true});
  ranks.run([&](Transport& transport) {
    const std::uint32_t rank = transport.rank().value();
    for (std::uint64_t turn = 0; turn < 50; ++turn) {
      gather_texts(transport, "here");
      const auto numbers = rank == 0 ? std::vector<std::uint64_t>{turn, turn + 1, turn + 2}
                                     : std::vector<std::uint64_t>();
      EXPECT_EQ(number_for_this_rank(transport, numbers), turn + rank);
    }
  });
}

}  // namespace
}  // namespace spillway::transport
