// Random trainers whose operators wait in queues on several ranks, against the same on one rank.

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "drawn_placement.h"
#include "queued_memory.h"

namespace spillway::pipeline {
namespace {

using Contents = RankMemory::Contents;

std::vector<std::vector<Contents>> on_ranks(const DrawnPlacement& drawn, std::uint64_t seed) {
  const Placement placement = placement_of(drawn);
  std::vector<std::vector<Contents>> seen(placement.ranks());
  transport::InProcessRanks ranks({.ranks = placement.ranks(),
                                   .seed = seed,
                                   .most_delay = std::chrono::microseconds(50),
                                   .sends_wait = seed % 2 == 0});
  ranks.run([&](transport::Transport& transport) {
    Ownership ownership(placement,
                        StageCuts(even_cuts(parameters_of_random_trainer(seed), drawn.stages)));
    QueuedMemory memory(ranks, transport, ownership, 1 + seed % 4);
    run_random_trainer(seed, memory,
                       [&] { seen[transport.rank().value()].push_back(memory.drain()); });
    memory.finish();
  });
  return seen;
}

class QueuedPrograms : public ::testing::TestWithParam<DrawnPlacement> {};

TEST_P(QueuedPrograms, HaveTheBytesOfOneRank) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto expected = contents_on_one_rank(seed);
    const auto seen = on_ranks(GetParam(), seed);
    for (std::size_t step = 0; step < expected.size(); ++step) {
      Contents together;
      for (const auto& rank : seen) {
        for (const auto& [ordinal, bytes] : rank.at(step)) {
          ASSERT_TRUE(bytes) << "seed " << seed << ", storage " << ordinal;
          ASSERT_EQ(together.emplace(ordinal, bytes).first->second, bytes) << "seed " << seed;
        }
      }
      ASSERT_EQ(together, expected[step]) << "seed " << seed;
    }
  }
}

TEST(QueuedMemory, EndsItsThreadWhereTheProgramFails) {
  transport::InProcessRanks ranks({.ranks = 2});
  EXPECT_THROW(ranks.run([&](transport::Transport& transport) {
    Ownership ownership(placement_in_order(2), StageCuts({0, 1}));
    QueuedMemory memory(ranks, transport, ownership, 1);
    if (transport.rank() == Rank(1)) throw std::out_of_range("no such layer");
    memory.ask(memory.run({}, 1).front());
    transport.make_notifier()->wait();
  }),
               std::out_of_range);
}

INSTANTIATE_TEST_SUITE_P(Placements, QueuedPrograms, ::testing::ValuesIn(drawn_placements()),
                         [](const auto& made) { return std::string(made.param.name); });

}  // namespace
}  // namespace spillway::pipeline
