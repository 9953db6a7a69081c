#include "spillway/split/shared_gpu.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "spillway/transport/in_process.h"

namespace spillway::split {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

/// What a rank may use, and where its GPU is.
struct Member {
  const char* host;
  const char* gpus;
  bool has_share;
  const char* address;
};

struct Found {
  std::vector<unsigned> sharers;
  std::vector<bool> has_started_cuda;
  Duration took{0};  ///< With a second for each message.
};

Found found_by(const std::vector<Member>& members) {
  Found found{std::vector<unsigned>(members.size()), std::vector<bool>(members.size()), {}};
  std::vector<std::string> hosts;
  for (const Member& member : members) hosts.push_back(member.host);
  transport::InProcessRanks ranks(
      {.ranks = static_cast<std::uint32_t>(members.size()), .latency = seconds(1)});
  ranks.run([&](transport::Transport& transport) {
    const std::size_t rank = transport.rank().value();
    const Member& mine = members[rank];
    const CommonGpus common = agree_on_refusals(transport, hosts, "", {mine.gpus, mine.has_share});
    found.sharers[rank] =
        ranks_on_gpu(transport, hosts, mine.has_share, common, [&]() -> std::string {
          found.has_started_cuda[rank] = true;
          return mine.address;
        });
    found.took = std::max(found.took, ranks.clock().now() - TimePoint{});
  });
  return found;
}

/// Of the refusals alone, which are told in any case.
Duration least() { return found_by({{"a", "", false, ""}, {"a", "", false, ""}}).took; }

TEST(RanksOnGpu, CostsNothingWhereNobodyUsesGpusOrAllBudgetsAreSizes) {
  const Found sizes = found_by({{"a", "0", false, "7"}, {"a", "0", false, "7"}});
  EXPECT_THAT(sizes.sharers, ElementsAre(0, 0));
  EXPECT_THAT(sizes.has_started_cuda, ElementsAre(false, false));
  EXPECT_EQ(sizes.took, least());
}

TEST(RanksOnGpu, CostsNothingWhereEachRankHasAGpuOfItsOwnByName) {
  const Found own = found_by({{"a", "0", true, "7"}, {"a", "1", true, "8"}});
  EXPECT_THAT(own.sharers, ElementsAre(1, 1));
  EXPECT_EQ(own.took, least());
  EXPECT_EQ(found_by({{"a", "0", true, "7"}, {"b", "0", true, "7"}}).took, least()) << "hosts";
}

TEST(RanksOnGpu, CountsThoseOfOneAddressThoughOneOfThemAloneAsks) {
  const Found found = found_by({{"a", "all", false, "7"},
                                {"a", "all", true, "7"},
                                {"a", "all", false, "8"},
                                {"a", "3", true, "9"},
                                {"b", "all", false, "7"},
                                {"a", "", false, ""}});
  EXPECT_THAT(found.sharers, ElementsAre(2, 2, 1, 1, 1, 1));
  EXPECT_THAT(found.has_started_cuda, ElementsAre(true, true, true, false, false, false));
}

TEST(AgreeOnRefusals, IsThrownByAllBeforeGpusAreComparedAndNamesTheFirstThatHasOne) {
  std::vector<std::string> thrown(3);
  transport::InProcessRanks ranks({.ranks = 3});
  ranks.run([&](transport::Transport& transport) {
    const std::size_t rank = transport.rank().value();
    try {
      agree_on_refusals(transport, {"a", "b", "c"}, rank == 1 ? "no room" : "", {"0", true});
    } catch (const AgreedError& error) {
      thrown[rank] = error.what();
    }
  });
  EXPECT_THAT(thrown,
              ElementsAre("rank 1 (b): no room", "rank 1 (b): no room", "rank 1 (b): no room"));
}

}  // namespace
}  // namespace spillway::split
