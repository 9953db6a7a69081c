// Random trainers on several ranks against the same trainer on one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "drawn_placement.h"
#include "random_trainer.h"
#include "spillway/transport/in_process.h"
#include "support/sanitized.h"

namespace spillway::pipeline {
namespace {

std::vector<std::size_t> random_cuts(std::uint32_t units, std::uint32_t stages,
                                     std::mt19937_64& draws) {
  std::vector<std::size_t> cuts(stages);
  for (std::size_t& cut : cuts) cut = draws() % (units + 1);
  std::sort(cuts.begin(), cuts.end());
  cuts.front() = 0;
  return cuts;
}

/// What was found wrong, or nothing. The model is cut anew after each step.
std::string fault_on_ranks(const DrawnPlacement& one, std::uint64_t seed, Fault fault,
                           std::uint64_t replicates_every = 0) {
  const auto expected = contents_on_one_rank(seed);
  const Placement placement = placement_of(one);
  std::vector<std::vector<RankMemory::Contents>> seen(placement.ranks());
  std::string wrong;
  const auto body = [&](transport::Transport& transport) {
    const bool is_broken = transport.rank() == Rank(1);
    auto cuts = even_cuts(parameters_of_random_trainer(seed), one.stages);
    if (is_broken && fault == Fault::kCutsElsewhere) cuts.back() = 1;
    Ownership ownership(placement, StageCuts(cuts));
    RankMemory memory(transport, ownership, is_broken ? fault : Fault::kNone);
    memory.replicate(replicates_every);
    auto& mine = seen[transport.rank().value()];
    std::mt19937_64 draws(seed);
    run_random_trainer(seed, memory, [&] {
      ownership.recut(random_cuts(ownership.units().count(), one.stages, draws));
      mine.push_back(memory.contents());
      for (const auto& [ordinal, bytes] : memory.contents()) {
        const RankSet& holders = ownership.directory().at(StorageOrdinal(ordinal)).holders;
        if (holders.contains(transport.rank()) != bytes.has_value())
          wrong = message("rank {} and its directory disagree on storage {}", transport.rank(),
                          ordinal);
      }
    });
  };
  transport::InProcessRanks ranks({.ranks = placement.ranks(),
                                   .seed = seed,
                                   .most_delay = std::chrono::microseconds(50),
                                   .sends_wait = seed % 2 == 0});
  try {
    ranks.run(body);
  } catch (const std::exception& error) {
    return error.what();
  }
  for (std::size_t step = 0; step < expected.size(); ++step) {
    for (const auto& [ordinal, bytes] : expected[step]) {
      bool somebody_has_it = false;
      for (const auto& rank : seen) {
        const std::optional<std::uint64_t> found = rank.at(step).at(ordinal);
        somebody_has_it |= found.has_value();
        if (found && found != bytes) return message("storage {} has other bytes", ordinal);
      }
      if (!somebody_has_it) return message("storage {} is nowhere", ordinal);
    }
  }
  return wrong;
}

class Programs : public ::testing::TestWithParam<DrawnPlacement> {};

TEST_P(Programs, HaveThemWithParametersOnAllRanks) {
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    ASSERT_EQ(fault_on_ranks(GetParam(), seed, Fault::kNone, 1 + seed % 4), "") << "seed " << seed;
}

TEST_P(Programs, HaveTheBytesOfOneRank) {
  for (std::uint64_t seed = 0; seed < tries(300U, 60U); ++seed)
    ASSERT_EQ(fault_on_ranks(GetParam(), seed, Fault::kNone), "") << "seed " << seed;
}

TEST_P(Programs, AreNoticedWhereARankBreaksTheRules) {
  for (const Fault fault :
       {Fault::kKeepsWhatOthersWrite, Fault::kLosesAMessage, Fault::kCutsElsewhere}) {
    int noticed = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed)
      noticed += fault_on_ranks(GetParam(), seed, fault).empty() ? 0 : 1;
    EXPECT_GT(noticed, 20) << "fault " << static_cast<int>(fault);
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, Programs, ::testing::ValuesIn(drawn_placements()),
                         [](const auto& made) { return std::string(made.param.name); });

}  // namespace
}  // namespace spillway::pipeline
