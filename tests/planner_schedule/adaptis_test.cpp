// AdaPtis, later OctoPipe (Guo et al., arXiv 2509.23722): the rule of its order, and what it gains.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/rank_memory.h"
#include "spillway/schedule/boundary_stages.h"
#include "support/drawn_schedule.h"
#include "support/generated_schedule.h"

namespace spillway::planner_schedule {
namespace {

/// A rank that has done what it could: the rule, read from the lists and their times alone.
class RuleCheck {
 public:
  explicit RuleCheck(const Schedule& schedule)
      : schedule_(schedule), timing_(time_schedule(schedule, even_costs(schedule, 1.0, 1.0, 1.0))) {
    for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
      for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i)
        ends_[key(schedule.ranks[rank][i])] = timing_.spans[rank][i].end_seconds;
  }

  /// Positions at which a rank waited, or ran what had just come, although an action from later in
  /// its list had had its input for a tick, or was a weight gradient. Forwards do not count: they
  /// may lack room.
  std::vector<std::string> breaches() {
    for (std::uint32_t rank = 0; rank < schedule_.rank_count(); ++rank) check(rank);
    return breaches_;
  }

 private:
  using Key = std::tuple<ActionKind, std::uint32_t, std::uint32_t>;
  static Key key(const Action& action) { return {action.kind, action.stage, action.micro_batch}; }

  /// When its input is there on its rank; `is_far`: it was made on another one.
  double ready(const Action& action, bool& is_far) const {
    is_far = false;
    if (action.kind == ActionKind::kWeightGradient)
      return ends_.at({ActionKind::kInputGradient, action.stage, action.micro_batch});
    const auto from = schedule::input_stage(schedule_, action);
    if (!from && action.kind == ActionKind::kForward) return 0.0;
    if (!from) return ends_.at({ActionKind::kForward, action.stage, action.micro_batch});
    is_far = schedule_.rank_of(0, *from) != schedule_.rank_of(0, action.stage);
    return ends_.at({action.kind, *from, action.micro_batch});
  }

  void check(std::uint32_t rank) {
    const auto& list = schedule_.ranks[rank];
    double free_from = 0.0;
    for (std::size_t i = 0; i < list.size() && list[i].kind != ActionKind::kStep; ++i) {
      const double start = timing_.spans[rank][i].start_seconds;
      bool is_far = false;
      const bool is_fresh = ready(list[i], is_far) == start && is_far;
      for (std::size_t later = i + 1; later < list.size(); ++later) {
        const Action& other = list[later];
        if (other.kind == ActionKind::kStep || other.kind == ActionKind::kForward) continue;
        bool was_far = false;
        const double other_ready = ready(other, was_far);
        const bool waited = other_ready < start && start > free_from;
        const bool was_hasty = is_fresh && other_ready + (was_far ? 1.0 : 0.0) <= start;
        if (waited || was_hasty)
          breaches_.push_back(message("rank {}: {} before {}", rank, list[i], other));
      }
      free_from = timing_.spans[rank][i].end_seconds;
    }
  }

  const Schedule& schedule_;
  ScheduleTiming timing_;
  std::map<Key, double> ends_;
  std::vector<std::string> breaches_;
};

double step_with_messages(const Schedule& schedule, double message_seconds) {
  ScheduleCosts costs = even_costs(schedule, 1.0, 1.0, 1.0);
  costs.peer.latency_seconds = message_seconds;
  return time_schedule(schedule, costs).step_seconds;
}

TEST(Adaptis, AlternatesAndFillsWaits) {
  EXPECT_EQ(drawing(generated("adaptis", {.ranks = 2, .micro_batches = 3, .stages_per_rank = 2})),
            "r0: F0 F1 F2 f0 f1 .. i0 w0 f2 i1 I0 W0 w1 i2 I1 W1 w2 I2 W2\n"
            "r1: .. F0 F1 F2 f0 i0 f1 i1 I0 W0 f2 i2 I1 w0 W1 I2 w1 W2 w2\n");
}

TEST(Adaptis, DoesFirstWhatHidesMessages) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 7U})
    for (const std::uint32_t stages_per_rank : {1U, 2U, 3U})
      for (const std::uint32_t micro_batches : {1U, 3U, 4U, 8U, 13U}) {
        const Schedule schedule = generated(
            "adaptis",
            {.ranks = ranks, .micro_batches = micro_batches, .stages_per_rank = stages_per_rank});
        EXPECT_THAT(RuleCheck(schedule).breaches(), ::testing::IsEmpty())
            << ranks << " " << stages_per_rank << " " << micro_batches;
      }
}

// The check above is not empty: orders that are fixed before break the rule.
TEST(Adaptis, HasARuleThatFixedOrdersBreak) {
  EXPECT_THAT(RuleCheck(generated("zb-h2", 4, 8)).breaches(), ::testing::Not(::testing::IsEmpty()));
}

// The last rank starts p - 1 forwards late, whatever the order: nobody waits for more. No multiple
// of the ranks is needed, unlike interleaved.
TEST(Adaptis, WaitsForTheFirstForwardsAlone) {
  for (const std::uint32_t p : {1U, 2U, 3U, 5U, 8U, 16U})
    for (std::uint32_t m = 2 * p; m <= 3 * p + 1; ++m) {
      const Schedule schedule =
          generated("adaptis", {.ranks = p, .micro_batches = m, .stages_per_rank = 1});
      EXPECT_NEAR(step_with_messages(schedule, 0.0), 3.0 * m + (p - 1), 1e-9) << p << " " << m;
    }
}

// The paper compares itself with Megatron's interleaved 1F1B; also with messages of a third of a
// pass.
TEST(Adaptis, WaitsLessThanInterleavedInItsMemory) {
  for (const std::uint32_t p : {2U, 3U, 4U, 8U, 16U})
    for (const std::uint32_t v : {2U, 3U})
      for (const std::uint32_t rounds : {1U, 2U, 5U}) {
        const ScheduleRequest request{
            .ranks = p, .micro_batches = rounds * p, .stages_per_rank = v};
        const Schedule schedule = generated("adaptis", request);
        for (const double seconds : {0.0, 0.3})
          EXPECT_LT(step_with_messages(schedule, seconds),
                    step_with_messages(generated("interleaved", request), seconds))
              << p << " " << v << " " << rounds;
        const double most = p + (p - 1.0) / v;
        for (const auto& held : rank_factors(schedule))
          EXPECT_LE(held.in_flight, most + 1e-9) << p << " " << v << " " << rounds;
      }
}

}  // namespace
}  // namespace spillway::planner_schedule
