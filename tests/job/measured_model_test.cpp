#include "spillway/planner/job/measured_model.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "even_jobs.h"
#include "spillway/base/error.h"
#include "spillway/planner/forward_stash.h"
#include "spillway/profile/autograd_links.h"
#include "spillway/profile/import/trace_import.h"
#include "support/chain_profile.h"
#include "support/golden_part.h"
#include "support/piper_layers.h"

namespace spillway::job {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kPage = std::uint64_t{2} << 20;

TEST(MeasuredModel, HasALayerForEachForwardOperator) {
  const MeasuredModel model = measured_model(chain_profile());
  ASSERT_EQ(model.chain.layers.size(), 7U);  // Six convolutions and the loss.
  EXPECT_EQ(model.chain.layers[0].name, "aten::convolution #0");
  EXPECT_EQ(model.chain.layers[6].name, "aten::mse_loss #6");
  EXPECT_EQ(model.reserved, Bytes(100'000));
}

// A stage began seven convolutions later than its plan said: ranks did not count six that had been
// recorded for their scratch memory alone.
TEST(MeasuredModel, LetsOperatorsWithoutValuesJoinTheLayerBefore) {
  const partition::ModelChain chain = measured_model(chain_profile({.small = 3})).chain;
  ASSERT_EQ(chain.layers.size(), 7U);
  EXPECT_EQ(chain.layers[1].name, "aten::convolution #4");
  EXPECT_DOUBLE_EQ(chain.layers[0].forward_seconds, 4 * chain.layers[1].forward_seconds);
  EXPECT_THAT(chain.step->layer_of_operator, ElementsAre(0, 0, 0, 0, 1, 2, 3, 4, 5, 6));
  // None of them comes before the first layer, for ranks.
  const partition::ModelChain later = measured_model(chain_profile({.small_before = 2})).chain;
  ASSERT_EQ(later.layers.size(), 7U);
  EXPECT_EQ(later.layers[0].name, "aten::convolution #2");
  EXPECT_DOUBLE_EQ(later.layers[0].forward_seconds, 3 * later.layers[1].forward_seconds);
  EXPECT_THAT(later.step->layer_of_operator, ElementsAre(0, 0, 0, 1, 2, 3, 4, 5, 6));
}

// Each backward wrote the gradient of its parameters in place, and forward seemed to keep nothing.
TEST(MeasuredModel, EndsForwardOfPiperGraphsWithTheirLastLayer) {
  const profile::StepProfile profile = profile::import_piper(three_piper_layers(), "file");
  const planner::ForwardStash stash = planner::find_stash(profile.tape);
  EXPECT_EQ(stash.forward_end, 2U);
  EXPECT_EQ(stash.values.size(), 5U);  // Two outputs, and what each layer keeps inside.
  const partition::ModelChain chain = measured_model(profile).chain;
  ASSERT_EQ(chain.layers.size(), 3U);
  for (const partition::ModelLayer& layer : chain.layers) {
    EXPECT_NEAR(layer.forward_seconds, 0.1, 1e-9) << layer.name;
    EXPECT_NEAR(layer.backward_seconds, 0.15, 1e-9) << layer.name;
    EXPECT_EQ(layer.parameters, 8_MiB) << layer.name;
    EXPECT_DOUBLE_EQ(layer.static_ratio, 2.0) << layer.name;
  }
}

TEST(MeasuredModel, GivesAllTimeToALayerOrToTheUpdate) {
  const profile::StepProfile profile = chain_profile();
  const MeasuredModel model = measured_model(profile);
  double all = model.update_seconds;
  for (const partition::ModelLayer& layer : model.chain.layers)
    all += layer.forward_seconds + layer.backward_seconds;
  double measured = 0.0;
  for (const profile::TapeOp& op : profile.tape.ops) measured += seconds(op.time);
  EXPECT_NEAR(all, measured, 1e-12);
  EXPECT_DOUBLE_EQ(model.update_seconds, 0.006);
  // The backward of a convolution uses the input of that one and its output; the weights tell.
  for (partition::LayerIndex i = 0; i < 6; ++i)
    EXPECT_DOUBLE_EQ(model.chain.layers[i].backward_seconds, 0.008) << i;
}

TEST(MeasuredModel, CountsWeightsGradientsAndStatesOnce) {
  const MeasuredModel model = measured_model(chain_profile());
  for (partition::LayerIndex i = 0; i < 6; ++i) {
    EXPECT_EQ(model.chain.layers[i].parameters, Bytes(2 * kPage)) << i;
    EXPECT_DOUBLE_EQ(model.chain.layers[i].static_ratio, 3.0) << i;
  }
}

// A net of small tensors had no parameters at all, so copies of it had no gradients to send.
TEST(MeasuredModel, CountsParametersThatAreTooSmallForTheTape) {
  profile::StepProfile profile = chain_profile();
  const MeasuredModel before = measured_model(profile);
  profile.small_parameter_bytes = Bytes(70'003);
  const MeasuredModel model = measured_model(profile);
  Bytes added;
  for (partition::LayerIndex i = 0; i < 7; ++i) {
    const Bytes more = model.chain.layers[i].parameters - before.chain.layers[i].parameters;
    EXPECT_GE(more, Bytes(10'000)) << i;
    added += more;
  }
  EXPECT_EQ(added, Bytes(70'003));
  EXPECT_EQ(model.reserved, Bytes(29'997));  // They are not there twice.
}

// The quotient touches neither states nor parameters, and was taken for backward of the last layer.
TEST(MeasuredModel, GivesTheUpdateWhatItLeavesBetweenItsOperators) {
  const MeasuredModel plain = measured_model(chain_profile());
  const MeasuredModel adam = measured_model(chain_profile({.is_adam = true}));
  EXPECT_NEAR(adam.update_seconds, 3 * plain.update_seconds, 1e-12);
  for (partition::LayerIndex i = 0; i < 7; ++i) {
    const partition::ModelLayer& layer = adam.chain.layers[i];
    EXPECT_EQ(layer.working_peak, plain.chain.layers[i].working_peak) << i;
    EXPECT_EQ(plain.chain.layers[i].update_peak, Bytes()) << i;
    // The root and the quotient of it; the loss has no parameters.
    EXPECT_EQ(layer.update_peak, Bytes(i < 6 ? 4 * kPage : 0)) << i;
  }
}

double held_for_parameters(const partition::ModelLayer& layer) {
  return static_cast<double>(layer.parameters.count()) * layer.static_ratio +
         static_cast<double>(layer.buffers.count());
}

// A rank held 8 MiB for each tensor of 6.75 MiB, and its plan said 18 % less than it took.
TEST(MeasuredModel, HoldsWholePagesAndSendsBytes) {
  profile::StepProfile profile = chain_profile();
  const MeasuredModel whole = measured_model(profile);
  for (Bytes& bytes : profile.bytes_of_value) bytes -= Bytes(kPage / 2);
  const MeasuredModel model = measured_model(profile);
  ASSERT_EQ(model.chain.borders.size(), whole.chain.borders.size());
  for (std::size_t i = 0; i < model.chain.borders.size(); ++i)
    EXPECT_EQ(model.chain.borders[i].bytes, whole.chain.borders[i].bytes - Bytes(kPage / 2)) << i;
  for (partition::LayerIndex i = 0; i < 7; ++i) {
    EXPECT_EQ(model.chain.layers[i].stash, whole.chain.layers[i].stash) << i;
    EXPECT_EQ(model.chain.layers[i].working_peak, whole.chain.layers[i].working_peak) << i;
    EXPECT_DOUBLE_EQ(held_for_parameters(model.chain.layers[i]),
                     held_for_parameters(whole.chain.layers[i]))
        << i;
  }
}

TEST(MeasuredModel, KeepsWhatBackwardUses) {
  const MeasuredModel model = measured_model(chain_profile());
  EXPECT_EQ(model.chain.layers[0].stash, Bytes(16 * kPage));  // Its output, and the data.
  for (partition::LayerIndex i = 1; i < 6; ++i) {
    EXPECT_EQ(model.chain.layers[i].stash, Bytes(8 * kPage)) << i;
    ASSERT_EQ(model.chain.layers[i].recompute.size(), 1U);
    EXPECT_DOUBLE_EQ(model.chain.layers[i].recompute[0].seconds, 0.004);
  }
  ASSERT_EQ(model.chain.borders.size(), 6U);
  EXPECT_EQ(model.chain.borders[2].producer, 2U);
  EXPECT_THAT(model.chain.borders[2].consumers, ElementsAre(3U));
  EXPECT_EQ(model.chain.borders[2].bytes, Bytes(8 * kPage));
}

TEST(MeasuredModel, TiesLayersThatUseTheSameWeights) {
  profile::StepProfile profile = chain_profile();
  // The fourth convolution takes the weights of the first; its own are left unused.
  for (const profile::OpIndex op : {profile::OpIndex{3}, profile::OpIndex{9}})
    for (std::uint32_t i = 0; i < profile.tape.ops[op].use_count; ++i) {
      profile::TapeUse& use = profile.tape.uses[profile.tape.ops[op].first_use + i];
      if (profile.class_of_value[use.value] == profile::StorageClass::kParameter) use.value = 1;
    }
  const MeasuredModel model = measured_model(profile);
  ASSERT_EQ(model.chain.ties.size(), 1U);
  EXPECT_THAT(model.chain.ties[0].layers, ElementsAre(0U, 3U));
  EXPECT_EQ(model.chain.ties[0].bytes, Bytes(2 * kPage));
}

TEST(MeasuredModel, OffersNoRecomputationOfWhatMayNotRunAgain) {
  profile::StepProfile profile = chain_profile();
  profile.tape.ops[2].is_replayable = false;
  const MeasuredModel model = measured_model(profile);
  EXPECT_TRUE(model.chain.layers[2].recompute.empty());
  EXPECT_FALSE(model.chain.layers[3].recompute.empty());  // Its input is kept.
}

/// The value that an operator made.
profile::ValueIndex made_by(const profile::StepProfile& profile, profile::OpIndex op) {
  for (profile::ValueIndex i = 0; i < profile.tape.values.size(); ++i)
    if (profile.tape.values[i].birth == op) return i;
  return profile::kNoValue;
}

/// By what waits: a large output, which the next operator alone uses.
void have_forward_end_early(profile::StepProfile& profile) {
  const profile::ValueIndex large = made_by(profile, 3);
  profile.tape.values[large].pages = 1000;
  profile.bytes_of_value[large] = 1000 * profile.page_size;
  profile.tape.values[large].death = 4;
  for (std::size_t i = profile.tape.ops[5].first_use; i < profile.tape.uses.size(); ++i)
    if (profile.tape.uses[i].value == large) profile.tape.uses[i].value = made_by(profile, 2);
}

// Forward of a GPT seemed to end two operators early, and their parameters were lost.
TEST(MeasuredModel, EndsForwardNotBeforeTheLastParameterThatIsNewToIt) {
  profile::StepProfile profile = chain_profile();
  have_forward_end_early(profile);
  ASSERT_LT(planner::find_stash(profile.tape).forward_end, 5U);
  Bytes all;
  for (const partition::ModelLayer& layer : measured_model(profile).chain.layers)
    all += layer.parameters;
  EXPECT_EQ(all, Bytes(6 * 2 * kPage));
}

/// The same step, with what autograd knew of it: the loss is operator 6, then come six backward
/// ones.
profile::StepProfile known_chain() {
  profile::StepProfile profile = chain_profile();
  for (profile::OpIndex op = 0; op < profile.tape.ops.size(); ++op) {
    const bool is_backward = op > 6 && op < 13;
    profile.phase_of_op.push_back(op <= 6       ? OpPhase::kForward
                                  : is_backward ? OpPhase::kBackward
                                                : OpPhase::kOther);
    profile.forward_of_op.push_back(is_backward ? 12 - op : profile::kNoForward);
  }
  return profile;
}

TEST(MeasuredModel, IsTheSameByKnownPhasesWhereTheGuessIsRight) {
  const profile::StepProfile known = known_chain();
  profile::check(known);
  const MeasuredModel model = measured_model(known);
  const MeasuredModel guessed = measured_model(chain_profile());
  ASSERT_EQ(model.chain.layers.size(), guessed.chain.layers.size());
  for (partition::LayerIndex i = 0; i < model.chain.layers.size(); ++i) {
    EXPECT_EQ(model.chain.layers[i].name, guessed.chain.layers[i].name);
    EXPECT_DOUBLE_EQ(model.chain.layers[i].forward_seconds,
                     guessed.chain.layers[i].forward_seconds);
    EXPECT_DOUBLE_EQ(model.chain.layers[i].backward_seconds,
                     guessed.chain.layers[i].backward_seconds);
    EXPECT_EQ(model.chain.layers[i].stash, guessed.chain.layers[i].stash);
    EXPECT_EQ(model.chain.layers[i].parameters, guessed.chain.layers[i].parameters);
  }
  EXPECT_DOUBLE_EQ(model.update_seconds, guessed.update_seconds);
}

TEST(MeasuredModel, TakesTheOwnersThatAutogradKnew) {
  profile::StepProfile profile = known_chain();
  profile.forward_of_op[7] = 6;  // The loss, whose name and values it does not have.
  profile.forward_of_op[8] = 7;  // By way of another one, as in double backward.
  profile.forward_of_op[9] = profile::kNoForward;  // Is guessed.
  const MeasuredModel model = measured_model(profile);
  EXPECT_DOUBLE_EQ(model.chain.layers[6].backward_seconds, 0.016);
  EXPECT_DOUBLE_EQ(model.chain.layers[5].backward_seconds, 0.0);
  EXPECT_DOUBLE_EQ(model.chain.layers[4].backward_seconds, 0.0);
  EXPECT_DOUBLE_EQ(model.chain.layers[3].backward_seconds, 0.008);
}

// By what waits, forward ended earlier.
TEST(MeasuredModel, EndsForwardWhereBackwardBegan) {
  profile::StepProfile profile = known_chain();
  have_forward_end_early(profile);
  ASSERT_LT(planner::find_stash(profile.tape).forward_end, 5U);
  const MeasuredModel model = measured_model(profile);
  EXPECT_EQ(model.chain.layers.size(), 7U);
  EXPECT_FALSE(model.guesses_forward);
  // As it is read from a file: strategies go by that, too.
  profile.tape.forward_end = profile::forward_end_of(profile.phase_of_op);
  EXPECT_EQ(planner::find_stash(profile.tape).forward_end, 6U);
}

TEST(MeasuredModel, TellsWhereItGuesses) {
  EXPECT_TRUE(measured_model(chain_profile()).guesses_forward);
  EXPECT_FALSE(measured_model(known_chain()).guesses_forward);
}

// Nothing about its values tells that it clips.
TEST(MeasuredModel, CountsWhatAutogradKeepsNoAccountOfAsUpdate) {
  profile::StepProfile profile = known_chain();
  const double before = measured_model(profile).update_seconds;
  profile.phase_of_op[12] = OpPhase::kOther;
  profile.forward_of_op[12] = profile::kNoForward;
  const MeasuredModel model = measured_model(profile);
  EXPECT_DOUBLE_EQ(model.update_seconds, before + 0.008);
  EXPECT_DOUBLE_EQ(model.chain.layers[0].backward_seconds, 0.0);
}

double again(const MeasuredModel& model, partition::LayerIndex layer) {
  const std::vector<partition::RecomputePoint>& points = model.chain.layers[layer].recompute;
  return points.size() == 1 ? points[0].seconds : -1.0;
}

TEST(MeasuredModel, WritesInPlaceAgainWhereItRecomputes) {
  profile::StepProfile profile = chain_profile();
  // The fourth convolution overwrites its input, which backward then uses as it is.
  profile.tape.uses[profile.tape.ops[3].first_use].writes = true;
  const MeasuredModel model = measured_model(profile);
  EXPECT_DOUBLE_EQ(again(model, 1), 0.004);
  EXPECT_DOUBLE_EQ(again(model, 2), 0.008);  // It, and what has overwritten it.
  EXPECT_DOUBLE_EQ(again(model, 3), 0.008);  // Its input as it was.
  EXPECT_DOUBLE_EQ(again(model, 4), 0.004);
}

TEST(MeasuredModel, MakesInputsAnewThatHaveChangedSince) {
  profile::StepProfile profile = chain_profile();
  // The fifth convolution overwrites what the fourth one has read.
  profile.tape.uses[profile.tape.ops[4].first_use + 1] = {made_by(profile, 2), true};
  const MeasuredModel model = measured_model(profile);
  EXPECT_DOUBLE_EQ(again(model, 3), 0.008);
  // The fifth one reads what the fourth one made, which is kept.
  EXPECT_DOUBLE_EQ(again(model, 2), 0.008);
}

TEST(MeasuredModel, RunsNothingAgainThatChangesWhatWasThereBefore) {
  profile::StepProfile profile = chain_profile();
  profile::TapeUse& use = profile.tape.uses[profile.tape.ops[2].first_use + 1];
  use.writes = true;
  profile.class_of_value[use.value] = profile::StorageClass::kBuffer;  // Say, running means.
  const MeasuredModel model = measured_model(profile);
  EXPECT_TRUE(model.chain.layers[2].recompute.empty());
  EXPECT_DOUBLE_EQ(again(model, 3), 0.004);
}

// The data of a step, kept for the next one, was shown as weights of the first layer.
TEST(MeasuredModel, TellsBuffersFromParameters) {
  profile::StepProfile profile = chain_profile();
  const profile::ValueIndex weights = profile.tape.uses[profile.tape.ops[2].first_use + 1].value;
  const partition::ModelLayer before = measured_model(profile).chain.layers[2];
  EXPECT_EQ(before.buffers, Bytes());
  profile.class_of_value[weights] = profile::StorageClass::kBuffer;
  const partition::ModelLayer after = measured_model(profile).chain.layers[2];
  EXPECT_EQ(after.buffers, profile.bytes_of_value[weights]);
  EXPECT_EQ(after.parameters + after.buffers, before.parameters);
}

TEST(MeasuredModel, KeepsDataWhereItRecomputes) {
  const MeasuredModel model = measured_model(chain_profile());
  EXPECT_DOUBLE_EQ(again(model, 0), 0.004);
  EXPECT_EQ(model.chain.layers[0].recompute[0].stash, Bytes(8 * kPage));
  EXPECT_EQ(model.chain.layers[1].recompute[0].stash, Bytes());
}

TEST(MeasuredModel, TakesTheTurnFromNamesThatTellIt) {
  profile::StepProfile profile = chain_profile();
  profile.kinds[0].name = "Conv";
  profile.kinds[1].name = "Loss";
  profile.kinds[2].name = "Conv backward";
  // A first gradient that sizes take for something that forward leaves.
  const profile::ValueIndex gradient = made_by(profile, 7) + 1;
  profile.tape.values[gradient].pages = 1000;
  profile.bytes_of_value[gradient] = 1000 * profile.page_size;
  ASSERT_EQ(planner::find_stash(profile.tape).forward_end, 7U);
  EXPECT_EQ(measured_model(profile).chain.layers.size(), 7U);
}

std::set<std::pair<partition::LayerIndex, partition::LayerIndex>> waits(
    const partition::ModelChain& chain) {
  std::set<std::pair<partition::LayerIndex, partition::LayerIndex>> pairs;
  for (const partition::LayerDependence& each : chain.dependences)
    pairs.emplace(each.before, each.after);
  return pairs;
}

TEST(MeasuredModel, KeepsTheOrderOfAProfileThatDoesNotKnowAllDependences) {
  profile::StepProfile profile = chain_profile();
  EXPECT_FALSE(measured_model(profile).chain.may_reorder);
  // Whoever frees it finds a guess.
  EXPECT_THAT(waits(measured_model(profile).chain), IsEmpty());
  profile.tape.ops[1].is_replayable = false;
  profile.tape.ops[4].is_replayable = false;
  EXPECT_THAT(waits(measured_model(profile).chain), ElementsAre(std::pair{1U, 4U}));
}

TEST(MeasuredModel, LetsAllWaitForAnOperatorThatSeemsToMakeNothing) {
  profile::StepProfile profile = chain_profile();
  for (profile::TapeValue& value : profile.tape.values)
    if (value.birth == 2) value.birth = profile::kCarriedIn;
  EXPECT_THAT(
      waits(measured_model(profile).chain),
      ElementsAre(std::pair{2U, 3U}, std::pair{2U, 4U}, std::pair{2U, 5U}, std::pair{2U, 6U}));
}

TEST(MeasuredModel, KnowsWhatAnImportedProfileSaysOfSmallTensors) {
  profile::StepProfile profile = chain_profile();
  // The second one is of backward.
  profile.hidden_dependences = std::vector<profile::HiddenDependence>{{0, 3}, {2, 9}};
  const MeasuredModel model = measured_model(profile);
  EXPECT_TRUE(model.chain.may_reorder);
  EXPECT_THAT(waits(model.chain), ElementsAre(std::pair{0U, 3U}));
}

TEST(MeasuredModel, WritesWaitForReadersAndReadersForWrites) {
  profile::StepProfile profile = chain_profile();
  // The fourth convolution overwrites the output of the second one, which the third has read; the
  // fifth reads that besides.
  const profile::ValueIndex output = made_by(profile, 1);
  for (const auto& [op, writes] : {std::pair{3U, true}, std::pair{4U, false}}) {
    profile.tape.uses[profile.tape.ops[op].first_use + 1] = {output, writes};
  }
  profile.hidden_dependences.emplace();
  const MeasuredModel model = measured_model(profile);
  EXPECT_THAT(waits(model.chain), ElementsAre(std::pair{2U, 3U}, std::pair{3U, 4U}));
}

TEST(MeasuredModel, RefusesProfilesThatAreNoTrainingStep) {
  GoldenPart golden;
  profile::StepProfile empty = chain_profile();
  empty.tape.clear();
  EXPECT_THROW(measured_model(empty), ConfigError);
  const auto with_states_for = [](profile::StorageClass kind) {
    profile::StepProfile profile = chain_profile();
    for (profile::StorageClass& each : profile.class_of_value)
      if (each == kind || kind == profile::StorageClass::kOptimizerState)
        each = profile::StorageClass::kOptimizerState;
    return refusal([&] { measured_model(profile); });
  };
  // What touches states of the optimizer is the update: all of it, or all after the end of forward.
  golden.add(with_states_for(profile::StorageClass::kOptimizerState));
  golden.add(with_states_for(profile::StorageClass::kGradient));
}

TEST(ChainOfCosts, NamesTheFirstCostThatIsNone) {
  GoldenPart golden;
  EXPECT_EQ(chain_of_costs({1.0, 2.0}).layers[1].forward_seconds, 2.0);
  golden.add(refusal([] { chain_of_costs({1.0, -2.0}); }));
  golden.add(refusal([] { chain_of_costs({partition::kNotMeasured}); }));
  golden.add(refusal([] { chain_of_costs({}); }));
}

}  // namespace
}  // namespace spillway::job
