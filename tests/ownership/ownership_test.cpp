#include "spillway/pipeline/ownership/ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "drawn_placement.h"
#include "spillway/base/error.h"
#include "spillway/pipeline/ownership/stage_marks.h"

namespace spillway::pipeline {
namespace {

/// Stages 0, 1, 2 on ranks 0, 1, 2 with a parameter each; and the same beside it in reverse.
schedule::Schedule inverted() {
  schedule::Schedule schedule;
  schedule.stages = 3;
  schedule.micro_batches = 1;
  schedule.placement = {schedule::round_placement(3, 3), schedule::reversed_placement(3)};
  schedule.ranks.resize(3);
  return schedule;
}

class OwnershipTest : public ::testing::Test {
 protected:
  static constexpr StorageOrdinal kData{0};
  static StorageOrdinal parameter(std::uint64_t of_stage) { return StorageOrdinal(10 + of_stage); }
  static OperatorUse reads(StorageOrdinal storage) { return {storage}; }
  static OperatorUse writes(StorageOrdinal storage) { return {storage, true}; }
  static OperatorUse reads_parameter(std::uint64_t of_stage) {
    return {parameter(of_stage), false, true};
  }
  static OperatorUse writes_parameter(std::uint64_t of_stage) {
    return {parameter(of_stage), true, true};
  }

  Decision run(OpPhase phase, const std::vector<OperatorUse>& uses, StorageOrdinal result = {},
               AutogradNode made = {}, AutogradNode runs_in = {}, StorageOrdinal variable = {}) {
    const Decision decision = ownership_.decide(
        {.autograd = {phase, made, runs_in}, .accumulates_for = variable, .uses = uses});
    const MadeStorage made_storage{result, Bytes(8)};
    if (result.is_some()) ownership_.made({&made_storage, 1});
    return decision;
  }
  /// x0 = f(data, w0), x1 = f(x0, w1), x2 = f(x1, w2): storages 100, 101, 102 and nodes 1, 2, 3.
  void forward() {
    StorageOrdinal input = kData;
    for (std::uint64_t i = 0; i < 3; ++i) {
      const StorageOrdinal output(100 + i);
      run(OpPhase::kForward, {reads(input), reads_parameter(i)}, output, {1, ++nodes_});
      input = output;
    }
  }
  std::uint32_t stage_of(StorageOrdinal storage) const {
    return ownership_.stage_of(*facts(storage).unit);
  }
  static AutogradNode node(std::uint64_t number) { return {1, number}; }
  const StorageFacts& facts(StorageOrdinal storage) const {
    return ownership_.directory().at(storage);
  }

  std::uint64_t nodes_ = 0;
  Ownership ownership_{placement_in_order(3), StageCuts({0, 1, 2})};
};

TEST_F(OwnershipTest, GivesForwardToTheLatestStageOfItsInputs) {
  forward();
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(facts(StorageOrdinal(100 + i)).computed_by, Rank(i));
    EXPECT_EQ(facts(parameter(i)).home, Rank(i));
  }
  // A skip from the first stage to the last.
  const Decision skip =
      run(OpPhase::kForward, {reads(StorageOrdinal(100)), reads(StorageOrdinal(102))});
  EXPECT_EQ(skip.owners, RankSet::one(Rank(2)));
  ASSERT_EQ(skip.moves.size(), 1u);
  EXPECT_EQ(skip.moves[0].from, Rank(0));
  EXPECT_EQ(skip.moves[0].to, Rank(2));
}

TEST_F(OwnershipTest, TellsWhoHasAParameterThatGetsAStage) {
  const Decision first = run(OpPhase::kForward, {reads(kData), reads_parameter(0)});
  ASSERT_EQ(first.dealt.size(), 1u);
  EXPECT_EQ(first.dealt[0].parameter, parameter(0));
  EXPECT_EQ(first.dealt[0].holders, RankSet::one(Rank(0)));
  EXPECT_TRUE(run(OpPhase::kForward, {reads(kData), reads_parameter(0)}).dealt.empty());
  // Not those who have it once it has moved to whoever computes with it.
  ownership_.found_on(Rank(2), parameter(1));
  const Decision second = run(OpPhase::kForward, {reads_parameter(1)});
  ASSERT_EQ(second.dealt.size(), 1u);
  EXPECT_EQ(second.dealt[0].holders, RankSet::one(Rank(2)));
  EXPECT_TRUE(facts(parameter(1)).holders.contains(Rank(1)));
}

TEST_F(OwnershipTest, CountsTheParametersThatEachRankKeeps) {
  forward();
  OperatorUse larger = reads_parameter(3);
  larger.size = Bytes(96);
  run(OpPhase::kForward, {larger});
  OperatorUse again = reads_parameter(3);
  again.size = Bytes(96);
  run(OpPhase::kForward, {again});
  const Rank home = facts(parameter(3)).home;
  EXPECT_EQ(ownership_.most_parameters_of(home), Bytes(96));
  ownership_.ended(parameter(3));
  OperatorUse next = reads_parameter(4);
  next.size = Bytes(40);
  run(OpPhase::kForward, {next});
  EXPECT_EQ(ownership_.most_parameters_of(facts(parameter(4)).home), Bytes(96));
}

TEST_F(OwnershipTest, MovesBytesOnceUntilTheyChange) {
  forward();
  const std::vector<OperatorUse> uses{reads(StorageOrdinal(100)), reads(StorageOrdinal(102))};
  EXPECT_EQ(run(OpPhase::kForward, uses).moves.size(), 1u);
  EXPECT_EQ(run(OpPhase::kForward, uses).moves.size(), 0u);
  run(OpPhase::kForward, {writes(StorageOrdinal(100))});
  EXPECT_EQ(run(OpPhase::kForward, uses).moves.size(), 1u);
}

TEST_F(OwnershipTest, NumbersMovesAcrossOperators) {
  forward();  // Two activations move on.
  const Decision next =
      run(OpPhase::kForward, {reads(StorageOrdinal(100)), reads(StorageOrdinal(102))});
  EXPECT_EQ(next.moves.at(0).number, 2u);
}

TEST_F(OwnershipTest, SaysWhatFollowsAnotherMicroBatchOfItsStep) {
  const StorageOrdinal buffer(300), gradient(200), copy(201), sum(202);
  const auto train_on_one = [&] {
    const std::uint64_t node_of_first = nodes_ + 1;
    forward();
    EXPECT_FALSE(
        run(OpPhase::kBackward, {reads(StorageOrdinal(102))}, gradient, {}, node(node_of_first + 2))
            .follows_other);
  };
  train_on_one();
  run(OpPhase::kForward, {reads(StorageOrdinal(100)), writes(buffer)});
  run(OpPhase::kOther, {reads(gradient)}, copy);
  run(OpPhase::kBackward, {writes(sum), reads(gradient)}, {}, {}, {}, parameter(2));
  train_on_one();
  // Sums and updates may hang on any.
  EXPECT_FALSE(run(OpPhase::kBackward, {writes(sum), reads(gradient)}, {}, {}, {}, parameter(2))
                   .follows_other);
  forward();
  EXPECT_TRUE(run(OpPhase::kForward, {reads(StorageOrdinal(100)), reads(copy)}).follows_other);
  const Decision changes = run(OpPhase::kForward, {reads(StorageOrdinal(100)), writes(buffer)});
  EXPECT_FALSE(changes.follows_other);
  ASSERT_EQ(changes.follows_forward.size(), 1u);
  EXPECT_EQ(changes.follows_forward[0].micro_batch, 0u);
  EXPECT_EQ(changes.follows_forward[0].stage, *facts(buffer).forward_of);
  run(OpPhase::kBackward, {reads(StorageOrdinal(102))}, {}, {}, node(nodes_));
  run(OpPhase::kOther, {writes_parameter(2), reads(sum)});
  forward();  // Of another step.
  EXPECT_FALSE(run(OpPhase::kForward, {reads(StorageOrdinal(100)), reads(copy)}).follows_other);
}

TEST_F(OwnershipTest, SaysThatForwardFollowsInputsThatWereMovedAlongTheirGradients) {
  const StorageOrdinal gradient(200), shift(201), moved(202);
  forward();
  run(OpPhase::kBackward, {reads(StorageOrdinal(102))}, gradient, {}, node(nodes_));
  run(OpPhase::kOther, {reads(gradient)}, shift);
  run(OpPhase::kForward, {reads(shift)}, moved);
  forward();
  EXPECT_TRUE(run(OpPhase::kForward, {reads(StorageOrdinal(100)), reads(moved)}).follows_other);
}

TEST_F(OwnershipTest, SaysThatForwardFollowsBackwardOfItsStep) {
  const StorageOrdinal gradient(200);
  forward();
  EXPECT_FALSE(run(OpPhase::kBackward, {reads(StorageOrdinal(102))}, gradient, {}, node(nodes_))
                   .follows_backward);
  EXPECT_TRUE(run(OpPhase::kForward, {reads(gradient)}).follows_backward);
  run(OpPhase::kOther, {writes_parameter(2), reads(gradient)});
  forward();  // Of another step.
  EXPECT_FALSE(run(OpPhase::kForward, {reads(gradient)}).follows_backward);
}

TEST_F(OwnershipTest, SaysThatAMicroBatchOverwritesWhatAnotherOneReads) {
  const StorageOrdinal buffer(300);
  forward();
  run(OpPhase::kOther, {reads(StorageOrdinal(100)), writes(buffer)});
  run(OpPhase::kBackward, {reads(StorageOrdinal(102))}, {}, {}, node(nodes_));
  run(OpPhase::kOther, {writes_parameter(2), reads(StorageOrdinal(102))});
  forward();
  EXPECT_FALSE(run(OpPhase::kForward, {reads(StorageOrdinal(100)), reads(buffer)}).follows_other);
  run(OpPhase::kBackward, {reads(StorageOrdinal(102))}, {}, {}, node(nodes_));
  forward();
  EXPECT_FALSE(run(OpPhase::kForward, {reads(StorageOrdinal(100)), reads(buffer)}).follows_other);
  EXPECT_TRUE(run(OpPhase::kForward, {reads(StorageOrdinal(100)), writes(buffer)}).follows_other);
}

TEST_F(OwnershipTest, KeepsParametersOfSomeOperatorsOnAllRanks) {
  const std::vector<OperatorUse> uses{reads(kData), {parameter(0), false, true, Bytes(64)}};
  const Decision first = ownership_.decide(
      {.autograd = {.phase = OpPhase::kForward}, .replicates = true, .uses = uses});
  EXPECT_EQ(first.owners, RankSet::one(Rank(0)));
  EXPECT_TRUE(first.dealt.at(0).holders.is_all());
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(ownership_.most_parameters_of(Rank(rank)), Bytes(64));
  const StorageOrdinal gradient(200);
  run(OpPhase::kBackward, {reads(kData)}, gradient, {}, {}, parameter(0));
  const Decision update = run(OpPhase::kOther, {writes_parameter(0), reads(gradient)});
  EXPECT_TRUE(update.updates_replicated);
  EXPECT_TRUE(update.owners.is_all());
  EXPECT_EQ(update.moves.size(), 2u);  // Of the gradient.
  EXPECT_TRUE(facts(parameter(0)).holders.is_all());
  // Tied to the last stage: nothing has to come.
  run(OpPhase::kForward, {reads(kData), reads_parameter(0)}, StorageOrdinal(100));
  run(OpPhase::kForward, {reads(kData), reads_parameter(1)}, StorageOrdinal(101));
  EXPECT_TRUE(
      run(OpPhase::kForward, {reads(StorageOrdinal(101)), reads_parameter(0)}).moves.empty());
}

TEST_F(OwnershipTest, GivesBackwardToTheRankOfItsNode) {
  forward();
  const StorageOrdinal gradient(200);
  EXPECT_EQ(run(OpPhase::kBackward, {}, gradient, {}, node(3)).owners, RankSet::one(Rank(2)));
  EXPECT_EQ(run(OpPhase::kBackward, {reads(gradient)}, {}, {}, node(2)).owners,
            RankSet::one(Rank(1)));
}

TEST_F(OwnershipTest, AddsUpGradientsOfNodesWhereTheEarliestIs) {
  forward();
  const StorageOrdinal late(200), early(201);
  run(OpPhase::kBackward, {}, late, {}, node(3));
  run(OpPhase::kBackward, {}, early, {}, node(2));
  EXPECT_EQ(run(OpPhase::kBackward, {reads(late), reads(early)}).owners, RankSet::one(Rank(1)));
}

TEST_F(OwnershipTest, AccumulatesAtTheHomeOfTheParameter) {
  ownership_ = Ownership(Placement(inverted()), StageCuts({0, 1, 2}));
  forward();
  run(OpPhase::kBackward, {}, StorageOrdinal(200), {}, node(1));
  forward();  // Reversed: stage 0 on rank 2.
  EXPECT_EQ(ownership_.micro_batch(), 1u);
  EXPECT_EQ(facts(StorageOrdinal(100)).computed_by, Rank(2));
  EXPECT_EQ(run(OpPhase::kBackward, {}, StorageOrdinal(201), {}, node(4)).owners,
            RankSet::one(Rank(2)));
  const Decision sum =
      run(OpPhase::kBackward, {writes(StorageOrdinal(200)), reads(StorageOrdinal(201))}, {}, {}, {},
          parameter(0));
  EXPECT_EQ(sum.owners, RankSet::one(facts(parameter(0)).home));
}

TEST_F(OwnershipTest, KeepsParametersOfAStageOnItsRanksByTurns) {
  ownership_ = Ownership(Placement(inverted()), StageCuts({0, 2, 2}));
  run(OpPhase::kForward, {reads(kData), reads_parameter(0), reads_parameter(1)});
  EXPECT_EQ(facts(parameter(0)).home, Rank(0));
  EXPECT_EQ(facts(parameter(1)).home, Rank(2));
  run(OpPhase::kForward, {reads(kData), reads_parameter(2)});
  EXPECT_EQ(stage_of(parameter(2)), 2u);  // The one between has none.
}

TEST_F(OwnershipTest, UpdatesParametersAndStatesAtHome) {
  forward();
  const StorageOrdinal gradient(200), state(300);
  run(OpPhase::kBackward, {}, gradient, {}, node(2));
  EXPECT_EQ(run(OpPhase::kOther, {reads_parameter(1)}, state).owners, RankSet::one(Rank(1)));
  EXPECT_EQ(run(OpPhase::kOther, {writes_parameter(1), writes(state), reads(gradient)}).owners,
            RankSet::one(Rank(1)));
}

TEST_F(OwnershipTest, CountsMicroBatchesByTheBackwardBetweenThem) {
  forward();
  forward();  // Two losses for one backward.
  EXPECT_EQ(ownership_.micro_batch(), 0u);
  for (std::uint64_t i = 0; i < 2; ++i) {
    run(OpPhase::kBackward, {}, {}, {}, node(1));
    forward();
    EXPECT_EQ(ownership_.micro_batch(), i + 1);
  }
  run(OpPhase::kBackward, {}, {}, {}, node(1));
  run(OpPhase::kOther, {writes_parameter(0)});
  forward();
  EXPECT_EQ(ownership_.micro_batch(), 0u);
}

TEST_F(OwnershipTest, CountsTheMicroBatchesThatTheProgramMarks) {
  for (std::uint64_t i = 0; i < 3; ++i) {
    ownership_.begin_micro_batch();
    forward();
    EXPECT_EQ(ownership_.micro_batch(), i);
    EXPECT_EQ(ownership_.micro_batch_of_run(), i);
  }
  run(OpPhase::kBackward, {}, {}, {}, node(1));
  forward();  // Without a mark it is none.
  EXPECT_EQ(ownership_.micro_batch(), 2u);
  run(OpPhase::kBackward, {}, {}, {}, node(1));
  run(OpPhase::kOther, {writes_parameter(0)});
  ownership_.begin_micro_batch();
  forward();
  EXPECT_EQ(ownership_.micro_batch(), 0u);
  EXPECT_EQ(ownership_.micro_batch_of_run(), 3u);
}

TEST_F(OwnershipTest, BeginsAStepThatTheProgramDoesNotMark) {
  ownership_.begin_micro_batch();
  forward();
  run(OpPhase::kBackward, {}, {}, {}, node(1));
  run(OpPhase::kOther, {writes_parameter(0)});
  forward();
  EXPECT_EQ(ownership_.micro_batch(), 0u);
  EXPECT_EQ(ownership_.micro_batch_of_run(), 1u);
}

TEST_F(OwnershipTest, LetsEvaluationFollowTheParameters) {
  forward();
  const StorageOrdinal value(400);
  EXPECT_EQ(run(OpPhase::kOther, {reads(kData), reads_parameter(0)}, value).owners,
            RankSet::one(Rank(0)));
  EXPECT_EQ(run(OpPhase::kOther, {reads(value), reads_parameter(2)}).owners, RankSet::one(Rank(2)));
}

TEST_F(OwnershipTest, KeepsStatisticsWhereForwardWritesThem) {
  const StorageOrdinal mean(500);
  ownership_ = Ownership(Placement(inverted()), StageCuts({0, 1, 2}));
  for (std::uint64_t i = 0; i < 2; ++i) {
    run(OpPhase::kForward, {reads(kData), reads_parameter(0), writes(mean)}, StorageOrdinal(100),
        node(++nodes_));
    EXPECT_EQ(facts(mean).holders, RankSet::one(Rank(i == 0 ? 0 : 2)));
    EXPECT_EQ(facts(mean).home, Rank(0));
    run(OpPhase::kBackward, {}, {}, {}, node(nodes_));
  }
}

TEST_F(OwnershipTest, ComputesEverywhereWhatBelongsToNoStage) {
  const StorageOrdinal mask(600);
  EXPECT_TRUE(run(OpPhase::kForward, {reads(kData)}, mask).owners.is_all());
  EXPECT_TRUE(run(OpPhase::kOther, {writes(mask)}).owners.is_all());
  EXPECT_EQ(ownership_.directory().size(), 0u);
}

TEST_F(OwnershipTest, BringsToAllWhatSteersTheProgram) {
  forward();
  const std::vector<OperatorUse> uses{reads(StorageOrdinal(102))};
  const Decision& asked = ownership_.decide({.kind = OperatorKind::kSteers, .uses = uses});
  EXPECT_TRUE(asked.owners.is_all());
  EXPECT_EQ(asked.moves.size(), 2u);
  EXPECT_TRUE(facts(StorageOrdinal(102)).holders.is_all());
}

TEST_F(OwnershipTest, GoesOnFromWhatSteersTheProgramWhereItsInputsAre) {
  forward();
  const StorageOrdinal selected(700);
  const std::vector<OperatorUse> uses{{StorageOrdinal(101), false, true}};
  const AutogradNode selects = node(++nodes_);
  ownership_.decide(
      {.kind = OperatorKind::kSteers, .autograd = {OpPhase::kForward, selects}, .uses = uses});
  const MadeStorage made{selected};
  ownership_.made({&made, 1});
  EXPECT_TRUE(facts(selected).holders.is_all());
  EXPECT_FALSE(facts(selected).is_parameter);
  // It is no new parameter, although nobody has dealt it to a stage.
  const Decision next = run(OpPhase::kForward, {{selected, false, true}}, StorageOrdinal(701));
  EXPECT_EQ(next.owners, RankSet::one(Rank(1)));
  EXPECT_TRUE(next.moves.empty());
  EXPECT_EQ(run(OpPhase::kBackward, {}, {}, {}, selects).owners, RankSet::one(Rank(1)));
}

TEST_F(OwnershipTest, TellsParametersFromWhatIsMadeOfThem) {
  forward();
  // An activation requires a gradient too; to read it begins no micro-batch.
  run(OpPhase::kBackward, {});
  run(OpPhase::kForward, {{StorageOrdinal(102), false, true}});
  EXPECT_EQ(ownership_.micro_batch(), 0u);
  run(OpPhase::kForward, {reads(kData), {parameter(0)}});
  EXPECT_EQ(ownership_.micro_batch(), 1u);
  // An optimizer that writes past what requires a gradient ends the step all the same.
  run(OpPhase::kBackward, {});
  run(OpPhase::kOther, {writes(parameter(0))});
  run(OpPhase::kForward, {reads(kData), reads_parameter(0)});
  EXPECT_EQ(ownership_.micro_batch(), 0u);
}

TEST_F(OwnershipTest, DealsParametersByBytes) {
  ownership_ = Ownership(placement_in_order(3), StageCuts::by_bytes(3));
  const std::vector<std::uint64_t> sizes{50, 10, 40, 20, 80, 90, 10};  // 300 in all.
  const auto use = [&](std::uint64_t i) {
    return OperatorUse{parameter(i), i % 2 == 0, true, Bytes(sizes[i])};
  };
  for (std::uint64_t i = sizes.size(); i-- > 0;) run(OpPhase::kOther, {use(i)});
  std::vector<std::uint32_t> stages;
  for (std::uint64_t i = 0; i < sizes.size(); ++i) {
    run(OpPhase::kForward, {use(i)});
    stages.push_back(stage_of(parameter(i)));
  }
  EXPECT_EQ(stages, (std::vector<std::uint32_t>{0, 0, 0, 1, 1, 2, 2}));
}

TEST_F(OwnershipTest, DealsParametersThatNobodyHasInitialisedByTurns) {
  ownership_ = Ownership(placement_in_order(3), StageCuts::by_bytes(3));
  for (std::uint64_t i = 0; i < 5; ++i) {
    run(OpPhase::kForward, {reads_parameter(i)});
    EXPECT_EQ(stage_of(parameter(i)), std::min<std::uint64_t>(i, 2));
  }
}

TEST_F(OwnershipTest, MovesNothingForViews) {
  forward();
  const std::vector<OperatorUse> uses{reads(StorageOrdinal(102))};
  const Decision& view = ownership_.decide({.kind = OperatorKind::kNoBytes, .uses = uses});
  EXPECT_TRUE(view.owners.is_all());
  EXPECT_TRUE(view.moves.empty());
  EXPECT_EQ(facts(StorageOrdinal(102)).holders, RankSet::one(Rank(2)));
}

TEST_F(OwnershipTest, ForgetsWhatHasEnded) {
  forward();
  const std::size_t before = ownership_.directory().size();
  ownership_.ended(StorageOrdinal(100));
  EXPECT_EQ(ownership_.directory().size(), before - 1);
}

TEST(Ownership, RefusesCutsThatAreNotOnePerStage) {
  const auto refuse = [](std::vector<std::size_t> cuts) {
    EXPECT_THROW(Ownership(placement_in_order(3), StageCuts(std::move(cuts))), PlanError);
  };
  refuse({0, 1});
  refuse({1, 2, 3});
  refuse({0, 3, 2});
}

TEST_F(OwnershipTest, MovesWhatBelongsToAUnitWithItsStage) {
  forward();
  const StorageOrdinal gradient(200), state(300), buffer(400);
  run(OpPhase::kForward, {reads_parameter(1), writes(buffer)});
  run(OpPhase::kBackward, {}, gradient, {}, node(2));
  run(OpPhase::kOther, {reads_parameter(1)}, state);
  run(OpPhase::kOther, {writes_parameter(1), writes(state), reads(gradient)});
  ownership_.recut({0, 2, 2});
  EXPECT_EQ(ownership_.first_of_stage(), (std::vector<std::size_t>{0, 2, 2}));
  const Decision computed = run(
      OpPhase::kForward, {reads(kData), reads_parameter(1), writes(buffer)}, StorageOrdinal(500));
  EXPECT_EQ(computed.owners, RankSet::one(Rank(0)));
  EXPECT_EQ(computed.stage, 0u);
  ASSERT_EQ(computed.moves.size(), 2u);
  for (const Move& move : computed.moves) EXPECT_EQ(move.from, Rank(1));
  const Decision update =
      run(OpPhase::kOther, {writes_parameter(1), writes(state), reads(gradient)});
  EXPECT_EQ(update.owners, RankSet::one(Rank(0)));
  EXPECT_EQ(facts(state).holders, RankSet::one(Rank(0)));
  EXPECT_EQ(ownership_.most_parameters_of(Rank(0)), ownership_.most_parameters_of(Rank(2)));
  EXPECT_THROW(ownership_.recut({0, 1}), PlanError);
}

TEST_F(OwnershipTest, KeepsTogetherWhatWasTogetherWhereItMoves) {
  ownership_ = Ownership(Placement(inverted()), StageCuts({0, 2, 2}));
  run(OpPhase::kForward, {reads_parameter(0), reads_parameter(1)});
  run(OpPhase::kForward, {reads_parameter(2)});
  const StorageOrdinal state(300);
  run(OpPhase::kOther, {reads_parameter(1)}, state);
  ownership_.recut({0, 0, 2});
  EXPECT_EQ(facts(parameter(0)).home, Rank(1));
  EXPECT_EQ(facts(parameter(1)).home, Rank(1));
  ownership_.recut({0, 0, 0});
  EXPECT_EQ(facts(parameter(1)).home, facts(state).home);
}

TEST_F(OwnershipTest, KnowsTheBytesOfUnits) {
  const auto parameter_of = [](std::uint64_t number, std::uint64_t bytes) {
    return OperatorUse{parameter(number), false, true, Bytes(bytes)};
  };
  run(OpPhase::kForward, {reads(kData), parameter_of(0, 100)}, StorageOrdinal(100), node(1));
  const OperatorUse output{StorageOrdinal(100), false, false, Bytes(8)};
  run(OpPhase::kForward, {output, parameter_of(1, 50), parameter_of(2, 10)}, StorageOrdinal(101));
  run(OpPhase::kForward, {output, parameter_of(0, 100)}, StorageOrdinal(102));
  ownership_.ended(StorageOrdinal(102));
  run(OpPhase::kForward, {{StorageOrdinal(101), false, false, Bytes(8)}, parameter_of(0, 100)});
  run(OpPhase::kBackward, {}, StorageOrdinal(200), {}, node(1));
  run(OpPhase::kForward, {output, parameter_of(2, 10)}, StorageOrdinal(103));  // Not counted.
  const std::vector<ModelUnit> units = ownership_.units().units(ownership_.directory());
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].kept, Bytes(200));
  EXPECT_EQ(units[0].stash, Bytes(8));
  EXPECT_EQ(units[1].stash, Bytes(0));
  EXPECT_EQ(units[2].stash, Bytes(8));
  EXPECT_FALSE(units[1].is_joined);
  EXPECT_TRUE(units[2].is_joined);
  const std::vector<UnitBorder>& borders = ownership_.units().borders();
  // The tied parameter, what the first unit has made, and the parameter of the second.
  ASSERT_EQ(borders.size(), 3u);
  for (const UnitBorder& border : borders)
    EXPECT_EQ(border.consumers, (std::vector<std::uint32_t>{2}));
}

TEST_F(OwnershipTest, KnowsWhoHasMadeWhatIsWrittenInPlace) {
  const auto sized = [](OperatorUse use) {
    use.size = Bytes(8);
    return use;
  };
  const StorageOrdinal value(100);
  run(OpPhase::kForward, {sized(reads(kData)), reads_parameter(0)}, value, node(1));
  run(OpPhase::kForward, {sized(writes(value)), reads_parameter(1)}, {}, node(2));
  run(OpPhase::kForward, {sized(reads(value)), reads_parameter(2)}, StorageOrdinal(101), node(3));
  run(OpPhase::kBackward, {}, StorageOrdinal(200), {}, node(3));
  const std::vector<UnitBorder>& borders = ownership_.units().borders();
  ASSERT_EQ(borders.size(), 2u);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(borders[i].producer, i);
    EXPECT_EQ(borders[i].consumers, (std::vector<std::uint32_t>{i + 1}));
  }
}

TEST_F(OwnershipTest, DealsParametersToStagesThatBegin) {
  ownership_ = Ownership(placement_in_order(3), StageCuts::by_begins(3));
  run(OpPhase::kForward, {reads_parameter(0)});
  run(OpPhase::kForward, {reads_parameter(1)});
  ownership_.begin_stage();
  ownership_.begin_stage();
  run(OpPhase::kForward, {reads_parameter(2)});
  EXPECT_EQ(ownership_.first_of_stage(), (std::vector<std::size_t>{0, 2, 2}));
}

TEST(StageMarks, AreFoundByTheNumberOfTheirName) {
  StageMarks marks({{"mm", 1}, {"mm", 2}, {"add", 1}});
  EXPECT_FALSE(marks.begins_stage("mm"));
  EXPECT_FALSE(marks.begins_stage("add"));
  EXPECT_EQ(marks.missing(),
            "stage 1 begins with mm, number 2 of that name in forward, and forward "
            "has 1");
  EXPECT_TRUE(marks.begins_stage("mm"));
  EXPECT_TRUE(marks.begins_stage("mm"));
  EXPECT_FALSE(marks.begins_stage("relu"));
  EXPECT_FALSE(marks.have_all_come());
  EXPECT_TRUE(marks.begins_stage("add"));
  EXPECT_TRUE(marks.have_all_come());
  EXPECT_TRUE(StageMarks({}).have_all_come());
}

TEST(Placement, TakesPipelinesFirstAndThenPlacements) {
  schedule::Schedule schedule = inverted();
  schedule.data_parallel = 2;
  const Placement placement(schedule);
  EXPECT_EQ(placement.ranks(), 6u);
  EXPECT_EQ(placement.turns(), 4u);
  std::vector<std::uint32_t> of_stage_0;
  for (std::uint64_t i = 0; i < 6; ++i) of_stage_0.push_back(placement.rank_of(0, i).value());
  EXPECT_EQ(of_stage_0, (std::vector<std::uint32_t>{0, 3, 2, 5, 0, 3}));
}

TEST(RankSet, HoldsOneSomeOrAll) {
  RankSet set = RankSet::one(Rank(3));
  set.insert(Rank(1));
  set.insert(Rank(3));
  EXPECT_EQ(set.list(5), (std::vector<Rank>{Rank(1), Rank(3)}));
  EXPECT_EQ(set.first(), Rank(1));
  EXPECT_FALSE(set.contains(Rank(2)));
  EXPECT_TRUE(RankSet::all().contains(Rank(2)));
  EXPECT_EQ(RankSet::all().list(2), (std::vector<Rank>{Rank(0), Rank(1)}));
  EXPECT_TRUE(RankSet().is_empty());
}

}  // namespace
}  // namespace spillway::pipeline
