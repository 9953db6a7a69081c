// The order that ranks agree on, between ranks whose letters are late by chance.
#include "agreement.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

namespace spillway::transport::nccl {
namespace {

using Done = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t>;

/// Ranks that ask for the same things in orders of their own; letters of each pair stay in order.
class Ranks {
 public:
  Ranks(std::uint32_t count, std::uint64_t seed) : random_(seed), order_(count) {
    for (std::uint32_t i = 0; i < count; ++i) all_.emplace_back(Rank(i));
  }

  Agreement& operator[](std::uint32_t i) { return all_[i]; }

  std::uint64_t draw(std::uint64_t below) { return random_() % below; }

  /// Delivers one letter by chance; false: none is left.
  bool step() {
    for (std::uint32_t i = 0; i < all_.size(); ++i) collect(i);
    std::vector<std::deque<Letter>*> full;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ends;
    for (auto& [pair, letters] : letters_)
      if (!letters.empty()) {
        full.push_back(&letters);
        ends.push_back(pair);
      }
    if (full.empty()) return false;
    const std::size_t drawn = draw(full.size());
    const Letter letter = full[drawn]->front();
    full[drawn]->pop_front();
    all_[ends[drawn].second].take(Rank(ends[drawn].first), letter);
    collect(ends[drawn].second);
    return true;
  }

  /// Of each rank, what it does, in its order.
  const std::vector<std::vector<Done>>& order() const { return order_; }
  const std::vector<Agreement::Batch>& batches() const { return batches_; }
  std::vector<std::pair<Rank, Agreement::Misfit>> misfits;

 private:
  void collect(std::uint32_t i) {
    for (const auto& [to, letter] : all_[i].take_letters())
      letters_[{i, to.value()}].push_back(letter);
    for (Agreement::Batch& batch : all_[i].take_agreed()) {
      const std::uint32_t low = batch.circle.group > 0 ? 0 : std::min(i, batch.circle.peer.value());
      const std::uint32_t high =
          batch.circle.group > 0 ? batch.circle.group : std::max(i, batch.circle.peer.value());
      for (const Request& request : batch.requests)
        order_[i].emplace_back(low + (batch.circle.group > 0 ? 1000 : 0), high, request.place,
                               request.number);
      batches_.push_back(std::move(batch));
    }
    for (const Agreement::Misfit& misfit : all_[i].take_misfits())
      misfits.emplace_back(Rank(i), misfit);
  }

  std::mt19937_64 random_;
  std::vector<Agreement> all_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Letter>> letters_;
  std::vector<std::vector<Done>> order_;
  std::vector<Agreement::Batch> batches_;
};

/// Whether devices that work off these lists, each thing once all its ranks have come to it, come
/// to the end.
bool comes_to_an_end(std::vector<std::vector<Done>> lists) {
  std::map<Done, std::size_t> parts;
  for (const auto& list : lists)
    for (const Done& done : list) ++parts[done];
  std::vector<std::size_t> at(lists.size());
  bool has_moved = true;
  while (has_moved) {
    has_moved = false;
    std::map<Done, std::vector<std::size_t>> heads;
    for (std::size_t i = 0; i < lists.size(); ++i)
      if (at[i] < lists[i].size()) heads[lists[i][at[i]]].push_back(i);
    for (const auto& [done, ranks] : heads) {
      if (ranks.size() != parts[done]) continue;
      for (const std::size_t rank : ranks) ++at[rank];
      has_moved = true;
    }
  }
  for (std::size_t i = 0; i < lists.size(); ++i)
    if (at[i] != lists[i].size()) return false;
  return true;
}

TEST(Agreement, GivesAllRanksOneOrderInWhichNoneWaitsForEver) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    constexpr std::uint32_t kRanks = 5;
    Ranks ranks(kRanks, seed);
    const std::vector<Rank> group{Rank(0), Rank(2), Rank(4)};
    for (const Rank rank : group) ranks[rank.value()].add_group(1, group);
    std::vector<std::vector<std::pair<Circle, Request>>> asked(kRanks);
    for (std::uint64_t number = 0; number < 30; ++number) {
      const auto low = static_cast<std::uint32_t>(ranks.draw(kRanks - 1));
      const auto high = static_cast<std::uint32_t>(low + 1 + ranks.draw(kRanks - low - 1));
      const Request request{number, 8, static_cast<std::uint32_t>(ranks.draw(2)), 0};
      asked[low].push_back({{0, Rank(high)}, request});
      asked[high].push_back({{0, Rank(low)}, request});
      if (number % 5 != 0) continue;
      for (const Rank rank : group) asked[rank.value()].push_back({{1, Rank()}, {number, 8, 6, 3}});
    }
    std::vector<std::pair<std::uint32_t, std::size_t>> moments;
    for (std::uint32_t i = 0; i < kRanks; ++i) {
      for (std::size_t k = asked[i].size(); k > 1; --k)
        std::swap(asked[i][k - 1], asked[i][ranks.draw(k)]);
      for (std::size_t k = 0; k < asked[i].size(); ++k) moments.emplace_back(i, k);
    }
    for (std::size_t k = moments.size(); k > 1; --k)
      std::swap(moments[k - 1], moments[ranks.draw(k)]);
    for (const auto& [rank, k] : moments) {
      ranks[rank].offer(asked[rank][k].first, asked[rank][k].second);
      for (std::uint64_t steps = ranks.draw(4); steps > 0; --steps) ranks.step();
    }
    while (ranks.step()) {
    }
    for (std::uint32_t i = 0; i < kRanks; ++i) {
      ASSERT_EQ(ranks.order()[i].size(), asked[i].size()) << "rank " << i << " of seed " << seed;
      ASSERT_FALSE(ranks[i].held()) << seed;
    }
    ASSERT_TRUE(comes_to_an_end(ranks.order())) << seed;
    ASSERT_TRUE(ranks.misfits.empty());
  }
}

TEST(Agreement, PutsBothDirectionsOfAPairInOnePlaceAndCutsIt) {
  Ranks ranks(2, 1);
  for (std::uint64_t number = 0; number < 50; ++number) {
    ranks[1].offer({0, Rank(0)}, {number, 8, 2, 0});
    ranks[1].offer({0, Rank(0)}, {number, 8, 3, 0});
  }
  while (ranks.step()) {
  }
  EXPECT_TRUE(ranks.batches().empty());
  for (std::uint64_t number = 0; number < 50; ++number) {
    ranks[0].offer({0, Rank(1)}, {number, 8, 2, 0});
    ranks[0].offer({0, Rank(1)}, {number, 8, 3, 0});
  }
  while (ranks.step()) {
  }
  std::size_t most = 0;
  for (const Agreement::Batch& batch : ranks.batches())
    most = std::max(most, batch.requests.size());
  EXPECT_EQ(most, Letter::kMost);
  EXPECT_EQ(ranks.order()[0].size(), 100U);
  EXPECT_EQ(ranks.order()[0], ranks.order()[1]);
}

TEST(Agreement, TellsAllRanksOfACircleWhoAsksForSomethingElse) {
  Ranks ranks(3, 1);
  const std::vector<Rank> group{Rank(0), Rank(1), Rank(2)};
  for (std::uint32_t i = 0; i < 3; ++i) {
    ranks[i].add_group(1, group);
    ranks[i].offer({1, Rank()}, {7, i == 2 ? 16U : 8U, 6, 0});
  }
  while (ranks.step()) {
  }
  ASSERT_EQ(ranks.misfits.size(), 3U);
  for (const auto& [rank, misfit] : ranks.misfits) {
    EXPECT_EQ(misfit.other == Rank(2), rank != Rank(2));
    EXPECT_EQ(misfit.theirs.bytes, rank == Rank(2) ? 8U : 16U);
    EXPECT_FALSE(misfit.has_ended);
  }
  EXPECT_TRUE(ranks.batches().empty());
}

// Whoever leads the pair, and whichever side comes last.
TEST(Agreement, TellsWhoAsksForWhatAnotherRankDoesNotAskForAnyMore) {
  for (const std::uint32_t leaver : {0U, 1U})
    for (const bool is_early : {true, false}) {
      Ranks ranks(2, 1);
      const std::uint32_t asker = 1 - leaver;
      if (is_early) ranks[asker].offer({0, Rank(leaver)}, {3, 8, 2, 0});
      if (is_early) ranks.step();
      ranks[leaver].end();
      ranks[asker].take(Rank(leaver), {.kind = Letter::Kind::kEnded});
      if (!is_early) {
        if (leaver == 0) ranks[asker].take(Rank(leaver), {.kind = Letter::Kind::kLast});
        ranks[asker].offer({0, Rank(leaver)}, {3, 8, 2, 0});
      }
      while (ranks.step()) {
      }
      ASSERT_EQ(ranks.misfits.size(), 1U) << leaver << is_early;
      EXPECT_EQ(ranks.misfits[0].first, Rank(asker));
      EXPECT_EQ(ranks.misfits[0].second.other, Rank(leaver));
      EXPECT_TRUE(ranks.misfits[0].second.has_ended);
    }
}

}  // namespace
}  // namespace spillway::transport::nccl
