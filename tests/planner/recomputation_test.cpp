#include "spillway/planner/recomputation.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {
namespace {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::kSurvives;
using profile::TapeOp;
using profile::TapeUse;

/// A tape that is written down operator by operator; names in tests are the numbers it returns.
class TapeWriter {
 public:
  OpIndex op(std::vector<TapeUse> uses, bool is_replayable = true) {
    TapeOp added{.signature = tape.ops.size() + 1, .time = Duration(1000)};
    added.first_use = static_cast<std::uint32_t>(tape.uses.size());
    added.use_count = static_cast<std::uint32_t>(uses.size());
    added.is_replayable = is_replayable;
    tape.uses.insert(tape.uses.end(), uses.begin(), uses.end());
    tape.ops.push_back(added);
    return last();
  }
  /// A value that the latest operator makes.
  ValueIndex value() {
    tape.values.push_back({.pages = 1, .birth = last(), .death = kSurvives});
    return static_cast<ValueIndex>(tape.values.size() - 1);
  }
  ValueIndex carried_in() {
    tape.values.push_back({.pages = 1, .birth = kCarriedIn, .death = kSurvives});
    return static_cast<ValueIndex>(tape.values.size() - 1);
  }
  /// The latest operator is the last one to find it.
  void free(ValueIndex value) { tape.values[value].death = last(); }
  OpIndex last() const { return static_cast<OpIndex>(tape.ops.size() - 1); }

  StepTape tape;
};

std::string drawing(const std::vector<Replay>& replays) {
  std::string text;
  for (const Replay& replay : replays)
    text += std::to_string(replay.op) + "<" + std::to_string(replay.before) + " ";
  return text;
}

/// x -> a -> b -> c -> d, then backward uses d, c, b, a in this order; every value lives until
/// then.
struct Chain {
  explicit Chain(std::uint32_t layers) {
    x = writer.carried_in();
    for (std::uint32_t i = 0; i < layers; ++i) {
      writer.op({{i == 0 ? x : values.back(), false}});
      values.push_back(writer.value());
    }
    for (std::uint32_t i = layers; i-- > 0;) {
      writer.op({{values[i], false}}, false);
      writer.free(values[i]);
    }
  }
  const StepTape& tape() const { return writer.tape; }

  TapeWriter writer;
  ValueIndex x = 0;
  std::vector<ValueIndex> values;
};

TEST(Recomputation, RunsTheProducerAgainBeforeTheNextUse) {
  const Chain chain(4);
  const Recomputation all(chain.tape());
  // values[1] is born by operator 1 and last touched by forward in 2; backward needs it in 6.
  EXPECT_EQ(drawing(all.replays(std::vector<Drop>{{chain.values[1], 2}})), "1<6 ");
}

TEST(Recomputation, ComputesDroppedParentsFirstAndKeepsThemForTheirOwnUse) {
  const Chain chain(4);
  const Recomputation all(chain.tape());
  const std::vector<Drop> drops{{chain.values[0], 1}, {chain.values[1], 2}, {chain.values[2], 3}};
  EXPECT_EQ(drawing(all.replays(drops)), "0<5 1<5 2<5 ");
}

/// What is told when replays are not possible.
ReplayError::Cause cause_of(const StepTape& tape, const Replay& replay) {
  try {
    rewrite_tape(tape, std::vector<Replay>{replay});
  } catch (const ReplayError& error) {
    return error.cause();
  }
  ADD_FAILURE() << "possible";
  return {};
}

TEST(RewriteTape, NamesWhoChangedTheInputOfAReplay) {
  TapeWriter writer;
  const ValueIndex x = writer.carried_in();
  const OpIndex first = writer.op({{x, false}});
  const ValueIndex a = writer.value();
  const OpIndex second = writer.op({{a, false}});
  writer.value();
  const OpIndex update = writer.op({{x, true}});
  writer.free(a);
  const OpIndex last = writer.op({{x, false}}, false);
  const ReplayError::Cause written = cause_of(writer.tape, {last, first});
  EXPECT_EQ(written.op, first);
  EXPECT_EQ(written.before, last);
  EXPECT_EQ(written.value, x);
  EXPECT_EQ(written.by, update);
  EXPECT_TRUE(written.is_written);
  const ReplayError::Cause ended = cause_of(writer.tape, {last, second});
  EXPECT_EQ(ended.value, a);
  EXPECT_EQ(ended.by, writer.tape.values[a].death);
  EXPECT_FALSE(ended.is_written);
}

/// It was filled by several operators, one of which may run again for what else it makes.
TEST(Recomputation, NeverDropsSharedPagesAndDoesWithoutThem) {
  Chain chain(3);
  StepTape& tape = chain.writer.tape;
  const auto page = static_cast<ValueIndex>(tape.values.size());
  tape.values.push_back({.pages = 1, .birth = 0, .death = 4, .is_shared = true});
  // Written by operator 1 after operator 0 has made it, and read by the last one that it lives for.
  tape.uses.insert(tape.uses.begin() + tape.ops[2].first_use, {page, true});
  tape.uses.insert(tape.uses.begin() + tape.ops[5].first_use + 1, {page, false});
  for (const OpIndex op : {1, 4}) tape.ops[op].shared_count = 1;
  for (OpIndex op = 2; op < tape.ops.size(); ++op) tape.ops[op].first_use += op < 5 ? 1 : 2;
  ASSERT_NO_THROW(profile::check(tape));
  const Recomputation all(tape);
  EXPECT_FALSE(all.can_drop(page, 1));
  EXPECT_TRUE(all.can_drop(chain.values[0], 1));
  const std::vector<Replay> replays = all.replays(std::vector<Drop>{{chain.values[0], 1}});
  EXPECT_EQ(drawing(replays), "0<5 ");
  const RewrittenTape steps = rewrite_tape(tape, replays);
  ASSERT_TRUE(steps.is_replay[5]);
  EXPECT_TRUE(touches_of(steps.tape, 5).size() == uses_of(steps.tape, 5).size());
  EXPECT_EQ(steps.tape.values[page].birth, 0U);
  EXPECT_EQ(steps.tape.values[page].death, 4U);
  EXPECT_EQ(touches_of(steps.tape, 4).back().value, page);
  ASSERT_NO_THROW(profile::check(steps.tape));
}

TEST(Recomputation, DropsParentsAgainWhereThatIsAskedFor) {
  const Chain chain(3);
  const Recomputation all(chain.tape());
  const std::vector<Drop> drops{{chain.values[0], 1, true}, {chain.values[1], 2}};
  EXPECT_EQ(drawing(all.replays(drops)), "0<4 1<4 0<5 ");
}

TEST(Recomputation, GoesThroughWritesInPlace) {
  TapeWriter writer;
  const ValueIndex x = writer.carried_in();
  writer.op({{x, false}});
  const ValueIndex a = writer.value();
  writer.op({{a, true}});
  const OpIndex backward = writer.op({{a, false}}, false);
  const Recomputation all(writer.tape);
  EXPECT_EQ(drawing(all.replays(std::vector<Drop>{{a, 1}})), "0<2 1<2 ");
  const RewrittenTape steps = rewrite_tape(writer.tape, all.replays(std::vector<Drop>{{a, 1}}));
  EXPECT_EQ(steps.op_of[4], backward);
  EXPECT_EQ(steps.value_of.size(), 3U);
  EXPECT_EQ(steps.tape.values[a].death, 1U);
  EXPECT_EQ(steps.tape.values[2].birth, 2U);
}

TEST(Recomputation, RefusesWhatItsInputsNoLongerAllow) {
  TapeWriter writer;
  const ValueIndex x = writer.carried_in();
  writer.op({{x, false}});
  const ValueIndex a = writer.value();
  writer.op({{x, true}});  // What a was made of is gone.
  writer.op({{a, false}}, false);
  writer.op({{x, false}}, false);
  const ValueIndex b = writer.value();
  writer.op({{b, false}}, false);  // Born by an operator that may not run again.
  const Recomputation all(writer.tape);
  EXPECT_FALSE(all.can_drop(a, 0));
  EXPECT_FALSE(all.can_drop(b, 3));
  EXPECT_FALSE(all.can_drop(x, 1));  // Carried in.
  EXPECT_EQ(drawing(all.replays(std::vector<Drop>{{a, 0}, {b, 3}, {x, 1}})), "");
}

TEST(Recomputation, RecomputesWhatWasFreedAndFreesIt) {
  TapeWriter writer;
  const ValueIndex x = writer.carried_in();
  writer.op({{x, false}});
  const ValueIndex temporary = writer.value();
  writer.op({{temporary, false}});
  const ValueIndex a = writer.value();
  writer.free(temporary);
  writer.op({{x, false}}, false);
  writer.op({{a, false}}, false);
  writer.free(a);
  const Recomputation all(writer.tape);
  const auto replays = all.replays(std::vector<Drop>{{a, 1}});
  EXPECT_EQ(drawing(replays), "0<3 1<3 ");
  const RewrittenTape steps = rewrite_tape(writer.tape, replays);
  profile::check(steps.tape);
  // Operators: 0 1 2 [0 1] 3; the temporary lives a second time from 3 to 4.
  EXPECT_EQ(steps.value_of[3], temporary);
  EXPECT_EQ(steps.tape.values[3].birth, 3U);
  EXPECT_EQ(steps.tape.values[3].death, 4U);
  EXPECT_EQ(steps.value_of[4], a);
  EXPECT_EQ(steps.tape.values[4].birth, 4U);
  EXPECT_EQ(steps.tape.values[4].death, 5U);
}

TEST(Recomputation, KeepsWhatWasFreedForFurtherReplaysWhereThatIsAskedFor) {
  TapeWriter writer;
  const ValueIndex x = writer.carried_in();
  writer.op({{x, false}});
  const ValueIndex temporary = writer.value();
  writer.op({{temporary, false}});
  const ValueIndex a = writer.value();
  writer.op({{temporary, false}});
  const ValueIndex b = writer.value();
  writer.free(temporary);
  writer.op({{x, false}}, false);
  writer.op({{b, false}}, false);
  writer.op({{a, false}}, false);
  const Recomputation all(writer.tape);
  const std::vector<Drop> drops{{a, 1}, {b, 2}};
  EXPECT_EQ(drawing(all.replays(drops)), "0<4 2<4 0<5 1<5 ");
  const std::vector<Drop> keeping{{a, 1}, {b, 2}, {temporary, 2}};
  EXPECT_EQ(drawing(all.replays(keeping)), "0<4 2<4 1<5 ");
  const RewrittenTape steps = rewrite_tape(writer.tape, all.replays(keeping));
  profile::check(steps.tape);
  // Operators: 0 1 2 3 [0 2] 4 [1] 5; the temporary lives a second time until its last replay.
  EXPECT_EQ(steps.value_of[4], temporary);
  EXPECT_EQ(steps.tape.values[4].birth, 4U);
  EXPECT_EQ(steps.tape.values[4].death, 7U);
}

TEST(RewrittenTape, WithoutReplaysIsTheTape) {
  const Chain chain(5);
  const RewrittenTape steps = rewrite_tape(chain.tape(), {});
  ASSERT_EQ(steps.tape.ops.size(), chain.tape().ops.size());
  for (std::size_t i = 0; i < chain.tape().values.size(); ++i) {
    EXPECT_EQ(steps.tape.values[i].birth, chain.tape().values[i].birth);
    EXPECT_EQ(steps.tape.values[i].death, chain.tape().values[i].death);
  }
}

TEST(RewrittenTape, SecondRunsTakeLongerByWhatTheyMake) {
  TapeWriter writer;
  writer.op({});
  const ValueIndex made = writer.value();
  writer.tape.values[made].pages = 5;
  writer.op({});
  writer.op({{made, false}});
  writer.tape.replay_extra_per_page = Duration(30);
  const std::vector<Replay> replays = {{2, 0}};
  const RewrittenTape steps = rewrite_tape(writer.tape, replays);
  ASSERT_EQ(steps.op_of, (std::vector<OpIndex>{0, 1, 0, 2}));
  EXPECT_EQ(steps.tape.ops[0].time, Duration(1000));
  EXPECT_EQ(steps.tape.ops[2].time, Duration(1150));
  EXPECT_DOUBLE_EQ(replay_seconds(writer.tape, replays), seconds(Duration(1150)));
}

TEST(RewrittenTape, RefusesReplaysThatWouldFindOtherInputs) {
  TapeWriter writer;
  const ValueIndex x = writer.carried_in();
  writer.op({{x, false}});
  writer.value();
  writer.op({{x, true}});
  writer.op({{x, false}}, false);
  EXPECT_THROW(rewrite_tape(writer.tape, std::vector<Replay>{{2, 0}}), PlanError);
  EXPECT_THROW(rewrite_tape(writer.tape, std::vector<Replay>{{2, 1}}), PlanError);
  EXPECT_THROW(rewrite_tape(writer.tape, std::vector<Replay>{{1, 2}}), PlanError);
  EXPECT_THROW(rewrite_tape(writer.tape, std::vector<Replay>{{7, 0}}), PlanError);
}

TEST(ReplaySeconds, MayBeMoreThanADurationHolds) {
  TapeWriter writer;
  writer.op({});
  writer.op({});
  writer.tape.ops[0].time = std::chrono::hours(24 * 365 * 30);
  const std::vector<Replay> replays(20, {.before = 1, .op = 0});
  EXPECT_DOUBLE_EQ(replay_seconds(writer.tape, replays), 20.0 * 24 * 365 * 30 * 3600);
}

/// Random steps with values read and written in place: whatever is dropped, the rewritten tape
/// holds together and every original operator is there once, in order.
TEST(RewrittenTape, HoldsTogetherForRandomDrops) {
  std::size_t replays_seen = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t limit) { return random() % limit; };
    TapeWriter writer;
    std::vector<ValueIndex> live{writer.carried_in(), writer.carried_in()};
    for (std::uint32_t i = 0; i < 30; ++i) {
      std::vector<TapeUse> uses;
      for (const ValueIndex value : live) {
        if (below(3) == 0) uses.push_back({value, below(8) == 0});
      }
      writer.op(uses, below(6) != 0);
      for (std::size_t births = below(3); births > 0; --births) live.push_back(writer.value());
      if (live.size() > 4 && below(2) == 0) {
        const std::size_t index = 2 + below(live.size() - 2);
        writer.free(live[index]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
      }
    }
    profile::check(writer.tape);
    const Recomputation all(writer.tape);
    std::vector<Drop> drops;
    for (ValueIndex value = 0; value < writer.tape.values.size(); ++value) {
      for (OpIndex op = 0; op < writer.tape.ops.size(); ++op) {
        if (below(2) == 0 && all.can_drop(value, op)) drops.push_back({value, op, below(4) == 0});
      }
    }
    const std::vector<Replay> replays = all.replays(drops);
    replays_seen += replays.size();
    const RewrittenTape steps = rewrite_tape(writer.tape, replays);
    profile::check(steps.tape);
    EXPECT_EQ(steps.tape.ops.size(), writer.tape.ops.size() + replays.size()) << "seed " << seed;
  }
  EXPECT_GT(replays_seen, 1000U);
}

}  // namespace
}  // namespace spillway::planner
