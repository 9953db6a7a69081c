// How long queues of tasks take in the time of ranks in one process, against closed forms for
// stages of equal work. GEMS: pipeline.md of its authors' released code, 1F1B: PipeDream-Flush.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "drawn_placement.h"
#include "even_trainer.h"

namespace spillway::pipeline {
namespace {

constexpr std::uint64_t kNoWindow = 1000;

struct Course {
  std::int64_t makespan = 0;            ///< In units of a forward.
  std::vector<std::size_t> most_begun;  ///< Micro-batches begun and not ended, at most, by rank.
};

using WindowOf = std::function<std::uint64_t(Rank)>;

Course course_of(const DrawnPlacement& drawn, std::uint64_t micro_batches,
                 const WindowOf& window_of) {
  const Placement placement = placement_of(drawn);
  Course course;
  course.most_begun.resize(placement.ranks());
  transport::InProcessRanks ranks({.ranks = placement.ranks()});
  ranks.run([&](transport::Transport& transport) {
    Ownership ownership(placement, StageCuts(even_cuts(drawn.stages, drawn.stages)));
    QueuedMemory memory(ranks, transport, ownership, window_of(transport.rank()));
    EvenTrainer trainer(memory, drawn.stages);
    for (std::uint64_t i = 0; i < micro_batches; ++i) trainer.train_on_micro_batch();
    memory.finish();
    course.most_begun[transport.rank().value()] = memory.most_begun();
  });
  course.makespan = ranks.clock().now().time_since_epoch() / EvenTrainer::kForward;
  return course;
}

std::int64_t makespan(const DrawnPlacement& drawn, std::uint64_t micro_batches,
                      std::uint64_t window) {
  return course_of(drawn, micro_batches, [window](Rank) { return window; }).makespan;
}

constexpr std::int64_t kUnits = 3;  // Of a forward and its backward.

TEST(ClosedForms, HoldForOneMicroBatchAfterTheOther) {
  for (const std::uint32_t stages : {2u, 4u, 8u})
    for (const std::uint64_t count : {1u, 3u})
      EXPECT_EQ(makespan({"", stages, 1, false}, count, 1),
                static_cast<std::int64_t>(count) * stages * kUnits);
}

TEST(ClosedForms, HoldForOneForwardAndOneBackwardByTurns) {
  for (const std::uint32_t stages : {2u, 4u, 8u}) {
    for (const std::uint64_t count : {1u, 4u, 16u}) {
      const Course course = course_of({"", stages, 1, false}, count,
                                      [stages](Rank rank) { return stages - rank.value(); });
      EXPECT_EQ(course.makespan, (static_cast<std::int64_t>(count) + stages - 1) * kUnits);
      for (std::uint32_t rank = 0; rank < stages; ++rank)
        EXPECT_EQ(course.most_begun[rank], std::min<std::uint64_t>(count, stages - rank));
    }
  }
}

/// Without a window the time is the same, and the first rank begins what comes to its turn.
TEST(ClosedForms, TakeMoreMemoryWithoutAWindow) {
  const Course course = course_of({"", 4, 1, false}, 16, [](Rank) { return kNoWindow; });
  EXPECT_EQ(course.makespan, (16 + 4 - 1) * kUnits);
  EXPECT_GT(course.most_begun[0], 2 * 4u);
}

/// S·f + R·S·b + (R − 1)·f of R micro-batches in alternating directions: GEMS-MAST and -MASTER.
TEST(ClosedForms, HoldForInvertedPlacementByTurns) {
  for (const std::int64_t stages : {2, 3, 4, 8})
    for (const std::int64_t count : {1, 2, 4, 8})
      EXPECT_EQ(makespan({"", static_cast<std::uint32_t>(stages), 1, true},
                         static_cast<std::uint64_t>(count), 1),
                stages + count * stages * 2 + (count - 1))
          << stages << " stages, " << count << " micro-batches";
}

TEST(ClosedForms, HoldForPipelinesBesideEachOther) {
  EXPECT_EQ(makespan({"", 1, 4, false}, 8, kNoWindow), 2 * kUnits);
  EXPECT_EQ(makespan({"", 4, 2, false}, 8, kNoWindow), (4 + 4 - 1) * kUnits);
}

}  // namespace
}  // namespace spillway::pipeline
