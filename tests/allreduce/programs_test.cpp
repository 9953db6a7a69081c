#include "programs.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::allreduce {
namespace {

/// The programs of all ranks for one sum, by a name.
using Job = std::pair<std::string, std::vector<Program>>;

std::vector<Job> jobs(std::uint32_t ranks) {
  std::vector<Job> all{{"ordered", {}}, {"ring", {}}, {"tree", {}}};
  for (std::uint32_t i = 0; i < ranks; ++i) {
    all[0].second.push_back(ordered_program(Rank(i), ranks));
    all[1].second.push_back(ring_program(Rank(i), ranks));
    all[2].second.push_back(tree_program(Rank(i), ranks));
  }
  for (std::uint32_t hosts = 2; hosts < ranks; ++hosts)
    for (const bool is_small : {false, true}) {
      std::vector<std::string> names;
      for (std::uint32_t i = 0; i < ranks; ++i) names.push_back(std::to_string(i * i % hosts));
      Job& job =
          all.emplace_back(message("{} hosts, small {}", hosts, is_small), Job::second_type());
      for (std::uint32_t i = 0; i < ranks; ++i)
        job.second.push_back(two_level_program(Rank(i), names, is_small));
    }
  return all;
}

class Programs : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Programs, SendWhatTheOthersReceive) {
  for (const auto& [name, programs] : jobs(GetParam())) {
    using Message = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
    std::map<Message, int> sent, received;  // From, to, number, slice.
    for (std::uint32_t i = 0; i < programs.size(); ++i)
      for (const Step& step : programs[i].steps) {
        const std::uint32_t peer = step.peer.is_some() ? step.peer.value() : 0;
        if (step.kind == Step::Kind::kSend) ++sent[{i, peer, step.message, step.slice}];
        if (step.kind == Step::Kind::kReceive) ++received[{peer, i, step.message, step.slice}];
      }
    EXPECT_EQ(sent, received) << name;
    for (const auto& [message, count] : sent) EXPECT_EQ(count, 1) << name;
  }
}

TEST_P(Programs, HaveNumbersAndRoomWithinTheirBounds) {
  const std::uint32_t ranks = GetParam();
  for (const auto& [name, programs] : jobs(ranks))
    for (const Program& program : programs) {
      // Two rounds at once are 4·D pieces, and numbers of messages are below 2·D in a round.
      EXPECT_LE(program.staged + program.slices, 2 * ranks) << name;
      for (const Step& step : program.steps) EXPECT_LT(step.message, 2 * ranks) << name;
    }
}

TEST_P(Programs, SendAsFewBytesAsAnyOrderNeeds) {
  const std::uint32_t ranks = GetParam();
  for (const auto& [name, programs] : jobs(ranks)) {
    if (name != "ordered" && name != "ring") continue;
    for (const Program& program : programs) {
      std::uint32_t slices = 0;
      for (const Step& step : program.steps) slices += step.kind == Step::Kind::kSend ? 1 : 0;
      EXPECT_EQ(program.slices, ranks);
      EXPECT_EQ(slices, 2 * (ranks - 1)) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfRanks, Programs, ::testing::Range(2u, 17u));

}  // namespace
}  // namespace spillway::allreduce
