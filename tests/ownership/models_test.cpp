// Models that come and go, data that require gradients, parameters that are replaced.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "drawn_placement.h"
#include "spillway/pipeline/ownership/ownership.h"

namespace spillway::pipeline {
namespace {

class Models : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kStages = 3;

  StorageOrdinal next() { return StorageOrdinal(next_++); }
  static OperatorUse reads(StorageOrdinal storage) { return {storage, false, false, Bytes(8)}; }
  static OperatorUse reads_leaf(StorageOrdinal storage) { return {storage, false, true, Bytes(8)}; }
  static OperatorUse writes_leaf(StorageOrdinal storage) { return {storage, true, true, Bytes(8)}; }

  Decision run(OpPhase phase, const std::vector<OperatorUse>& uses, StorageOrdinal result = {},
               AutogradNode made = {}, AutogradNode runs_in = {}) {
    const Decision decision = ownership_.decide({.autograd = {phase, made, runs_in}, .uses = uses});
    const MadeStorage made_storage{result, Bytes(8)};
    if (result.is_some()) ownership_.made({&made_storage, 1});
    return decision;
  }

  std::vector<StorageOrdinal> new_model(std::size_t parameters, bool is_initialised = true) {
    std::vector<StorageOrdinal> model;
    for (std::size_t i = 0; i < parameters; ++i) {
      model.push_back(next());
      if (is_initialised) run(OpPhase::kOther, {writes_leaf(model.back())});
    }
    return model;
  }
  /// What each layer makes.
  std::vector<StorageOrdinal> forward(const std::vector<StorageOrdinal>& model,
                                      const OperatorUse& input, bool is_declared = false) {
    std::vector<StorageOrdinal> made;
    OperatorUse value = input;
    for (const StorageOrdinal parameter : model) {
      made.push_back(next());
      OperatorUse leaf = reads_leaf(parameter);
      leaf.is_declared = is_declared;
      run(OpPhase::kForward, {value, leaf}, made.back(), {1, ++nodes_});
      value = reads(made.back());
    }
    return made;
  }
  void backward() { run(OpPhase::kBackward, {}, {}, {}, {1, nodes_}); }
  void update(const std::vector<StorageOrdinal>& model) {
    for (const StorageOrdinal parameter : model) run(OpPhase::kOther, {writes_leaf(parameter)});
  }
  void train(const std::vector<StorageOrdinal>& model, const OperatorUse& input) {
    const std::vector<StorageOrdinal> made = forward(model, input);
    backward();
    for (const StorageOrdinal storage : made) ownership_.ended(storage);
    update(model);
  }
  void train(const std::vector<StorageOrdinal>& model) { train(model, reads(kInput)); }

  const StorageFacts& facts(StorageOrdinal storage) const {
    return ownership_.directory().at(storage);
  }
  std::vector<std::uint32_t> homes_of(const std::vector<StorageOrdinal>& model) const {
    std::vector<std::uint32_t> homes;
    for (const StorageOrdinal parameter : model) homes.push_back(facts(parameter).home.value());
    return homes;
  }

  static constexpr StorageOrdinal kInput{0};
  std::uint64_t next_ = 1;
  std::uint64_t nodes_ = 0;
  Ownership ownership_{placement_in_order(kStages), StageCuts::by_bytes(kStages)};
};

using Homes = std::vector<std::uint32_t>;

TEST_F(Models, BeginWhereverTheOneBeforeEnds) {
  const auto run_all = [&](int ended_at) {
    ownership_ = Ownership(placement_in_order(kStages), StageCuts::by_bytes(kStages));
    const auto first = new_model(3);
    const auto end_first = [&](int now) {
      if (now != ended_at) return;
      for (const StorageOrdinal parameter : first) ownership_.ended(parameter);
    };
    train(first);
    const std::uint64_t before = ownership_.model();
    end_first(0);
    const auto second = new_model(6);
    end_first(1);
    const auto made = forward(second, reads(kInput));
    EXPECT_EQ(homes_of(second), (Homes{0, 0, 1, 1, 2, 2}));
    EXPECT_EQ(ownership_.units().count(), 6u);
    EXPECT_GT(ownership_.model(), before);
    EXPECT_EQ(facts(made.back()).computed_by, Rank(2));
    end_first(2);
    backward();
    update(second);
    end_first(3);
    train(second);
    EXPECT_EQ(homes_of(second), (Homes{0, 0, 1, 1, 2, 2}));
    end_first(4);
  };
  for (int ended_at = 0; ended_at <= 5; ++ended_at) run_all(ended_at);
}

TEST_F(Models, GoOnWhenOthersHaveBegun) {
  const auto first = new_model(3);
  const StorageOrdinal state = next();
  train(first);
  run(OpPhase::kOther, {reads_leaf(first[1])}, state);
  const auto second = new_model(3);
  train(second);
  EXPECT_FALSE(facts(first[0]).unit);
  for (int step = 0; step < 3; ++step) {
    train(first);
    train(second);
  }
  EXPECT_EQ(ownership_.units().count(), 6u);
  EXPECT_TRUE(facts(first[0]).is_parameter);
  run(OpPhase::kOther, {writes_leaf(first[1]), {state, true}});
  EXPECT_EQ(facts(state).holders, RankSet::one(facts(first[1]).home));
}

TEST_F(Models, BeginBehindALookAtTheOneBefore) {
  const auto first = new_model(6);
  train(first);
  const auto second = new_model(6);
  // A norm, with gradients switched on.
  run(OpPhase::kForward, {reads_leaf(first[4])}, next());
  train(second);
  EXPECT_EQ(homes_of(second), (Homes{0, 0, 1, 1, 2, 2}));
  // The same where the latter was made before the former's last backward.
  const auto third = new_model(6);
  train(second);
  forward(third, reads(kInput));
  EXPECT_FALSE(facts(third[0]).unit);
  backward();
  update(third);
  EXPECT_TRUE(ownership_.has_updated());
  for (int step = 0; step < 2; ++step) train(third);
  EXPECT_EQ(homes_of(third), (Homes{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(ownership_.units().count(), 6u);
}

TEST_F(Models, DoNotEndWhereTheyGrow) {
  const auto model = new_model(3);
  train(model);
  const auto added = new_model(3);
  for (int step = 0; step < 3; ++step) {
    forward(added, reads(forward(model, reads(kInput)).back()));
    backward();
    update(added);
    update(model);
  }
  EXPECT_EQ(ownership_.model(), 0u);
  EXPECT_EQ(homes_of(model), (Homes{0, 1, 2}));
}

TEST_F(Models, ThatNobodyInitialisesAreCutOnceTheirBytesAreKnown) {
  const auto bare = new_model(6, /*is_initialised=*/false);
  train(bare);
  EXPECT_EQ(homes_of(bare), (Homes{0, 1, 2, 2, 2, 2}));
  train(bare);
  EXPECT_EQ(homes_of(bare), (Homes{0, 0, 1, 1, 2, 2}));
  // A later one is computed by all for a step.
  const auto second = new_model(6, /*is_initialised=*/false);
  EXPECT_TRUE(run(OpPhase::kForward, {reads(kInput), reads_leaf(second[0])}).owners.is_all());
  for (int step = 0; step < 3; ++step) train(second);
  EXPECT_EQ(homes_of(second), (Homes{0, 0, 1, 1, 2, 2}));
}

TEST_F(Models, HaveEndedWhereNobodyUsesThem) {
  const auto first = new_model(3), second = new_model(3);
  const auto ended = [&] {
    std::vector<bool> units;
    for (const ModelUnit& unit : ownership_.units().units(ownership_.directory()))
      units.push_back(unit.has_ended);
    return units;
  };
  for (int turn = 0; turn < 20; ++turn) {
    train(turn % 2 == 0 ? first : second);
    if (turn > 0) {
      ASSERT_EQ(ended(), std::vector<bool>(6, false));
    }
  }
  for (int step = 0; step < 10; ++step) train(second);
  EXPECT_EQ(ended(), (std::vector<bool>{true, true, true, false, false, false}));
}

// Layers of nets that trained by turns of twenty steps went to and fro between ranks.
TEST_F(Models, HaveNotEndedWhereTheirTurnComesAgain) {
  const auto first = new_model(3), second = new_model(3);
  constexpr int kTurn = 20;
  for (int step = 0; step < 6 * kTurn; ++step) {
    train(step / kTurn % 2 == 0 ? first : second);
    if (step < 3 * kTurn) continue;  // Each has had a turn behind a pause.
    for (const ModelUnit& unit : ownership_.units().units(ownership_.directory()))
      ASSERT_FALSE(unit.has_ended) << "step " << step;
  }
  for (int step = 0; step < 3 * kTurn; ++step) train(first);
  EXPECT_TRUE(ownership_.units().units(ownership_.directory()).back().has_ended);
}

TEST_F(Models, EndStepsWhereHooksUpdateThemInBackward) {
  const auto model = new_model(3);
  const auto hook = [&] {
    backward();
    for (const StorageOrdinal parameter : model)
      run(OpPhase::kBackward, {writes_leaf(parameter)}, {}, {}, {1, nodes_});
  };
  const auto begins_step = [&] {
    const std::vector<OperatorUse> uses{reads(kInput), reads_leaf(model[0])};
    return ownership_.begins_step({.autograd = {OpPhase::kForward, {}, {}}, .uses = uses});
  };
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(begins_step(), step > 0);
    forward(model, reads(kInput));
    EXPECT_EQ(ownership_.micro_batch(), 0U);
    EXPECT_FALSE(begins_step());
    hook();
  }
  // Once it has updated behind a backward, that ends steps: the hook may be of one parameter.
  forward(model, reads(kInput));
  hook();
  update(model);
  EXPECT_TRUE(begins_step());
  for (std::uint64_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
    forward(model, reads(kInput));
    EXPECT_EQ(ownership_.micro_batch(), micro_batch);
    hook();
    EXPECT_FALSE(begins_step());
  }
}

TEST_F(Models, KeepWhatTheirFirstUpdateLeavesAlone) {
  // Two bare nets, of which one is trained first.
  const auto one = new_model(3, /*is_initialised=*/false), other = new_model(3, false);
  for (int step = 0; step < 4; ++step) {
    forward(other, reads(forward(one, reads(kInput)).back()));
    backward();
    update(step == 0 ? one : other);
  }
  EXPECT_EQ(ownership_.units().count(), 6u);
  EXPECT_EQ(homes_of(one), (Homes{0, 0, 1}));
  EXPECT_EQ(homes_of(other), (Homes{1, 2, 2}));
}

TEST_F(Models, HaveWhatAModuleHas) {
  const auto model = new_model(3), bare = new_model(3, /*is_initialised=*/false);
  train(model);
  for (int step = 0; step < 3; ++step) {
    forward(bare, reads(forward(model, reads(kInput)).back()), /*is_declared=*/true);
    backward();
    update(bare);
  }
  EXPECT_EQ(ownership_.units().count(), 6u);
  EXPECT_EQ(ownership_.model(), 0u);
  // Another one of a module that nobody initialises is cut from its first update on.
  const auto other = new_model(6, /*is_initialised=*/false);
  forward(other, reads(kInput), /*is_declared=*/true);
  EXPECT_EQ(homes_of(other), Homes(6, 2));
  backward();
  update(other);
  EXPECT_TRUE(ownership_.has_updated());
  EXPECT_EQ(ownership_.model(), 1u);
  forward(other, reads(kInput), /*is_declared=*/true);
  EXPECT_EQ(homes_of(other), (Homes{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(ownership_.units().count(), 6u);
}

TEST_F(Models, AreDealtByForwardAndNotByTheirInitialisers) {
  const auto model = new_model(6, /*is_initialised=*/false);
  const auto view = [&](StorageOrdinal storage) {
    const std::vector<OperatorUse> uses{reads_leaf(storage)};
    const OperatorCall call{
        .kind = OperatorKind::kNoBytes, .autograd = {OpPhase::kForward}, .uses = uses};
    EXPECT_FALSE(ownership_.begins_step(call));
    EXPECT_TRUE(ownership_.decide(call).dealt.empty());
    ownership_.made({});
  };
  for (std::size_t i = model.size(); i-- > 0;) {
    view(model[i]);
    run(OpPhase::kOther, {{model[i], true, false, Bytes(8)}});  // A view of it.
  }
  EXPECT_EQ(ownership_.units().count(), 0u);
  train({model.begin(), model.begin() + 3});
  view(model[0]);
  EXPECT_TRUE(ownership_.has_updated());
  // The others were initialised before the first backward.
  train(model);
  EXPECT_EQ(ownership_.units().count(), 6u);
}

TEST_F(Models, HaveOperatorsWithParametersAndWithFreeLeaves) {
  const auto has_parameter = [&](const std::vector<OperatorUse>& uses) {
    return ownership_.has_parameter({.autograd = {OpPhase::kForward}, .uses = uses});
  };
  const auto model = new_model(3);
  EXPECT_TRUE(has_parameter({reads(kInput), reads_leaf(model[0])})) << "which becomes one with it";
  train(model);
  EXPECT_TRUE(has_parameter({reads(kInput), reads_leaf(model[0])}));
  const StorageOrdinal data = next(), made = next();
  EXPECT_FALSE(has_parameter({reads(kInput), reads_leaf(data)}));
  run(OpPhase::kForward, {reads_leaf(data)}, made);
  EXPECT_FALSE(has_parameter({reads_leaf(data)}));
  EXPECT_FALSE(has_parameter({reads_leaf(made)}));
  EXPECT_TRUE(has_parameter({reads_leaf(made), reads_leaf(model[2])}));
}

TEST_F(Models, HaveNoUnitsForDataThatRequireGradients) {
  const auto model = new_model(6);
  train(model);
  std::size_t storages = 0;
  for (int step = 0; step < 4000; ++step) {
    const StorageOrdinal data = next(), other = next(), made = next();
    // Computed by all, and no leaf itself.
    EXPECT_TRUE(
        run(OpPhase::kForward, {reads_leaf(data), reads_leaf(other)}, made).owners.is_all());
    EXPECT_EQ(run(OpPhase::kForward, {{made, false, true}, reads_leaf(model[0])}, next()).owners,
              RankSet::one(Rank(0)));
    train(model, {made, false, true});
    for (std::uint64_t ended = data.value(); ended < next_; ++ended)
      ownership_.ended(StorageOrdinal(ended));
    if (step == 10) storages = ownership_.directory().size();
    if (step > 10) {
      ASSERT_EQ(ownership_.directory().size(), storages);
    }
    ASSERT_EQ(ownership_.units().count(), 6u);
    ASSERT_EQ(ownership_.model(), 0u);
    ASSERT_EQ(ownership_.micro_batch(), 0u);
  }
  EXPECT_EQ(homes_of(model), (Homes{0, 0, 1, 1, 2, 2}));
}

TEST_F(Models, AreNotTakenForOthersByTheirAverages) {
  const auto model = new_model(3), average = new_model(3, /*is_initialised=*/false);
  for (int step = 0; step < 10; ++step) {
    const StorageOrdinal data = next();
    run(OpPhase::kOther, {writes_leaf(data)});
    run(OpPhase::kForward, {reads_leaf(data)}, next());
    train(model);
    for (std::size_t i = 0; i < model.size(); ++i) {
      run(OpPhase::kOther, {writes_leaf(average[i])});
      run(OpPhase::kOther, {writes_leaf(average[i]), reads_leaf(model[i])});
    }
  }
  EXPECT_LE(ownership_.model(), 1u);  // They are new once.
  EXPECT_EQ(ownership_.units().count(), 4u);
}

TEST_F(Models, TakeInWhatAnUpdateWrites) {
  const auto model = new_model(3);
  train(model);
  const StorageOrdinal shift = next(), gradient = next();
  for (int iteration = 0; iteration < 5; ++iteration) {
    forward(model, reads_leaf(shift));
    run(OpPhase::kBackward, {}, gradient, {}, {1, nodes_ - 2});  // Of the first layer.
    EXPECT_EQ(facts(gradient).unit, 0u);
    run(OpPhase::kOther, {writes_leaf(shift), reads(gradient)});
    EXPECT_EQ(facts(shift).unit, 0u);
  }
  EXPECT_EQ(ownership_.units().count(), 3u);
  EXPECT_FALSE(ownership_.has_updated());  // The model was not.
  EXPECT_EQ(ownership_.micro_batch(), 4u);
}

TEST_F(Models, GoOnWithParametersThatReplaceOthers) {
  auto model = new_model(6);
  const StorageOrdinal rate = next();
  std::size_t storages = 0;
  for (std::uint64_t step = 0; step < 3000; ++step) {
    const auto made = forward(model, reads(kInput));
    ASSERT_EQ(ownership_.micro_batch(), 0u);
    ASSERT_EQ(ownership_.micro_batch_of_run(), step);
    backward();
    for (const StorageOrdinal storage : made) ownership_.ended(storage);
    for (StorageOrdinal& parameter : model) {
      const StorageOrdinal before = parameter;
      parameter = next();
      run(OpPhase::kOther, {reads_leaf(before), reads(rate)}, parameter);
      EXPECT_FALSE(facts(parameter).is_parameter);
      ownership_.ended(before);
    }
    const std::vector<OperatorUse> uses{reads(kInput), reads_leaf(model[0])};
    ASSERT_TRUE(ownership_.begins_step({.autograd = {OpPhase::kForward}, .uses = uses}));
    if (step == 10) storages = ownership_.directory().size();
    if (step > 10) {
      ASSERT_EQ(ownership_.directory().size(), storages);
    }
  }
  forward(model, reads(kInput));
  EXPECT_EQ(ownership_.units().count(), 6u);
  EXPECT_EQ(homes_of(model), (Homes{0, 0, 1, 1, 2, 2}));
  for (std::uint32_t rank = 0; rank < kStages; ++rank)
    EXPECT_EQ(ownership_.most_parameters_of(Rank(rank)), Bytes(16));
}

TEST_F(Models, KeepTheNodesOfTheLatestForwards) {
  const auto model = new_model(3);
  constexpr int kForwards = 300'000;
  for (int i = 0; i < kForwards; ++i)
    for (const StorageOrdinal storage : forward(model, reads(kInput))) ownership_.ended(storage);
  EXPECT_EQ(run(OpPhase::kBackward, {}, {}, {}, {1, nodes_ - 1}).owners, RankSet::one(Rank(1)));
  EXPECT_EQ(run(OpPhase::kBackward, {}, {}, {}, {1, nodes_ - 200'001}).owners,
            RankSet::one(Rank((nodes_ - 200'002) % 3)));
  EXPECT_TRUE(run(OpPhase::kBackward, {}, {}, {}, {1, 2}).owners.is_all());
}

}  // namespace
}  // namespace spillway::pipeline
