// Storages that are dropped and recomputed.
#include "recomputer_cases.h"

#include <array>
#include <thread>

namespace spillway::runtime {
namespace {

TEST_F(RecomputerTest, BringsADroppedStorageBackBeforeAnOperatorThatUsesIt) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  EXPECT_TRUE(engine_->is_dropped(a.storage));
  ran_.clear();
  EXPECT_EQ(read(a), 6u);
  EXPECT_EQ(ran_, "add1 ");
  EXPECT_EQ(temporaries_, 0);
  EXPECT_EQ(recomputer_->counts().replays, 1u);
  EXPECT_EQ(recomputer_->counts().unplanned_replays, 1u);
}

TEST_F(RecomputerTest, FollowsChainsThroughFreedStoragesAndWritesInPlace) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(a, 10, 1);
  triple(b, 2);
  const Tensor c = add(b, 100, 3);
  free(a);
  ASSERT_TRUE(recomputer_->drop(b.storage));
  ASSERT_TRUE(recomputer_->drop(c.storage));
  ran_.clear();
  EXPECT_EQ(read(c), 148u);
  EXPECT_EQ(ran_, "add1 add10 triple add100 ");
  EXPECT_EQ(read(b), 48u) << "came back on the way";
  EXPECT_EQ(temporaries_, 0);
}

TEST_F(RecomputerTest, RunsPlannedReplaysThatBringSomethingBackAndLeavesOutOthers) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 7);
  const Tensor b = add(a, 10, 8);
  const Tensor c = add(x, 2, 9);
  free(a);
  ASSERT_TRUE(recomputer_->drop(b.storage));
  ran_.clear();
  std::string heard;
  recomputer_->replay(std::array<OpIndex, 4>{7, 9, 8, 55}, [&](std::size_t position, bool ends) {
    heard += std::to_string(position) + (ends ? ") " : "( ");
  });
  EXPECT_EQ(ran_, "add1 add10 ") << "what operator 9 made is there";
  EXPECT_EQ(heard, "0( 0) 1( 1) 2( 2) 3( 3) ");
  EXPECT_EQ(word(b.memory), 16u);
  EXPECT_EQ(word(c.memory), 7u);
  EXPECT_EQ(recomputer_->counts().unplanned_replays, 0u);
  EXPECT_EQ(temporaries_, 0);
}

TEST_F(RecomputerTest, RefusesDropsThatCouldNotBeUndone) {
  const Tensor x = tensor();
  const Tensor a = add(x, 1, 0);
  EXPECT_FALSE(recomputer_->drop(x.storage)) << "nobody knows what made it";
  announce(a, true, false);  // Written by an operator that was not recorded.
  EXPECT_FALSE(recomputer_->drop(a.storage));
  const Tensor b = add(x, 1, 1);
  announce(x, true, false);
  EXPECT_FALSE(recomputer_->drop(b.storage)) << "what it was made of has changed";
  EXPECT_EQ(recomputer_->counts().refused_drops, 3u);
}

TEST_F(RecomputerTest, KnowsThatAnOperatorWroteThatCouldNotBeRecorded) {
  const Tensor x = tensor();
  const Tensor a = add(x, 1, 0);
  announce(a, true, true);
  recomputer_->note_unrecorded_writes({&a.storage, 1});
  EXPECT_FALSE(recomputer_->drop(a.storage));
}

TEST_F(RecomputerTest, ComputesAgainBeforeAnIngredientIsWritten) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  announce(x, true, false);
  EXPECT_FALSE(engine_->is_dropped(a.storage));
  word(x.memory) = 77;
  EXPECT_EQ(read(a), 6u);
}

TEST_F(RecomputerTest, KeepsFreedIngredientsUntilTheyAreNotNeeded) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  EXPECT_FALSE(recomputer_->may_end(x.storage));
  EXPECT_EQ(word(x.memory), 5u);
  EXPECT_THAT(take_ended(), ::testing::ElementsAre(x.storage));
  engine_->release(x.storage);
  EXPECT_FALSE(engine_->is_dropped(a.storage)) << "it came back before its ingredient went";
  EXPECT_EQ(word(a.memory), 6u);
}

// What had been settled before a failure was given back twice.
TEST_F(RecomputerTest, GivesFreedIngredientsBackOnceWhenOneOfThemFails) {
  std::vector<Tensor> ingredients, dropped;
  for (OpIndex place = 0; place < 3; ++place) {
    ingredients.push_back(tensor(place));
    dropped.push_back(add(ingredients.back(), 10, place));
    ASSERT_TRUE(recomputer_->drop(dropped.back().storage));
  }
  for (const Tensor& ingredient : ingredients)
    EXPECT_FALSE(recomputer_->may_end(ingredient.storage));
  runs_left_ = 1;
  EXPECT_THROW(take_ended(), IoError);
  runs_left_ = kNoFailure;
  EXPECT_THAT(take_ended(),
              ::testing::UnorderedElementsAre(ingredients[0].storage, ingredients[1].storage,
                                              ingredients[2].storage));
  EXPECT_THAT(take_ended(), ::testing::IsEmpty());
  for (OpIndex place = 0; place < 3; ++place) EXPECT_EQ(read(dropped[place]), 10u + place);
}

TEST_F(RecomputerTest, EndsAStepInASecondAttempt) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(a, 1, 1);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  ASSERT_TRUE(recomputer_->drop(b.storage));
  EXPECT_FALSE(recomputer_->may_end(x.storage));
  runs_left_ = 1;
  EXPECT_THROW(recomputer_->end_step(), IoError);
  runs_left_ = kNoFailure;
  recomputer_->end_step();
  EXPECT_THAT(take_ended(), ::testing::ElementsAre(x.storage));
  EXPECT_EQ(word(a.memory), 6u);
  EXPECT_EQ(word(b.memory), 7u);
}

TEST_F(RecomputerTest, LetsDroppedStoragesEndWithoutComputingThem) {
  const Tensor x = tensor();
  const Tensor a = add(x, 1, 0);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  ran_.clear();
  free(a);
  free(x);
  recomputer_->end_step();
  EXPECT_EQ(ran_, "");
  EXPECT_FALSE(recomputer_->is_active());
}

TEST_F(RecomputerTest, BringsEverythingBackWhenTheStepEnds) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(a, 1, 1);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  ASSERT_TRUE(recomputer_->drop(b.storage));
  recomputer_->end_step();
  EXPECT_EQ(word(a.memory), 6u);
  EXPECT_EQ(word(b.memory), 7u);
  EXPECT_EQ(engine_->statistics().faults, 0u);
  EXPECT_FALSE(recomputer_->drop(a.storage)) << "its operators are forgotten";
}

TEST_F(RecomputerTest, ServesAccessesThatNobodyAnnounced) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  EXPECT_EQ(word(a.memory), 6u);
  EXPECT_EQ(engine_->statistics().faults, 1u);
}

TEST_F(RecomputerTest, TellsOperatorsThatAReplayFailed) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  runs_left_ = 0;
  EXPECT_THROW(read(a), IoError);
  EXPECT_TRUE(engine_->is_dropped(a.storage));
  runs_left_ = kNoFailure;
  EXPECT_EQ(read(a), 6u) << "nothing was lost by the failure";
}

TEST_F(RecomputerTest, HoldsTemporariesOnlyWhileTheyAreNeeded) {
  const Tensor x = tensor(1);
  std::vector<Tensor> chain{x};
  for (OpIndex i = 0; i < 9; ++i) chain.push_back(add(chain.back(), i, i));
  for (std::size_t i = 1; i < 9; ++i) free(chain[i]);
  ASSERT_TRUE(recomputer_->drop(chain[9].storage));
  int most = 0;
  recomputer_->replay(std::array<OpIndex, 9>{0, 1, 2, 3, 4, 5, 6, 7, 8},
                      [&](std::size_t, bool) { most = std::max(most, temporaries_); });
  EXPECT_EQ(word(chain[9].memory), 37u);
  EXPECT_EQ(most, 1);
}

TEST_F(RecomputerTest, LooksIntoEachDroppedStorageOnceHoweverManyPathsLeadToIt) {
  // x + f(x), again and again: the number of paths doubles with each block.
  Tensor x = tensor(1);
  const Tensor first = x;
  OpIndex place = 0;
  std::vector<Tensor> dropped;
  for (int block = 0; block < 40; ++block) {
    const Tensor branch = add(x, 1, place++);
    const Tensor next = sum(x, branch, place++);
    ASSERT_TRUE(recomputer_->drop(branch.storage));
    ASSERT_TRUE(block == 0 || recomputer_->drop(x.storage));
    dropped.insert(dropped.end(), {branch, next});
    x = next;
  }
  ASSERT_TRUE(recomputer_->drop(x.storage));
  for (const Tensor& tensor : dropped)
    if (tensor.storage != x.storage) free(tensor);
  EXPECT_FALSE(recomputer_->may_end(first.storage)) << "everything is made of it";
  EXPECT_EQ(read(x), (std::uint64_t{1} << 41) - 1);
  EXPECT_EQ(recomputer_->counts().replays, 80u);
  EXPECT_LE(most_temporaries_, 3);
}

TEST_F(RecomputerTest, FollowsChainsThatAreLongerThanAStack) {
  constexpr OpIndex kLength = 20000;
  Tensor x = tensor();
  const Tensor first = x;
  word(x.memory) = 1;
  for (OpIndex place = 0; place < kLength; ++place) {
    const Tensor next = add(x, 1, place);
    if (place > 0) free(x);
    x = next;
  }
  ASSERT_TRUE(recomputer_->drop(x.storage));
  EXPECT_FALSE(recomputer_->may_end(first.storage));
  announce(first, true, false);
  EXPECT_EQ(word(x.memory), kLength + 1);
  EXPECT_EQ(recomputer_->counts().replays, kLength);
  EXPECT_EQ(most_temporaries_, 2);
}

TEST_F(RecomputerTest, RunsOperatorsInTheOrderInWhichTheyFoundTheirIngredients) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(a, 10, 1);
  triple(a, 2);
  const Tensor c = sum(a, b, 3);  // Of a as it is now, and of b, which was made of a before.
  free(a);
  free(b);
  ASSERT_TRUE(recomputer_->drop(c.storage));
  EXPECT_EQ(read(c), 18u + 16u);
}

TEST_F(RecomputerTest, BringsBackWhatWasMadeOfAnEarlierVersionOfWhatComesBack) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(a, 10, 1);
  triple(a, 2);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  ASSERT_TRUE(recomputer_->drop(b.storage));
  EXPECT_EQ(read(a), 18u);
  EXPECT_EQ(read(b), 16u) << "its ingredient has been overwritten";
}

TEST_F(RecomputerTest, GoesOnWithAPlanThatOverlooksAnEarlierVersion) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(a, 10, 1);
  triple(a, 2);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  ASSERT_TRUE(recomputer_->drop(b.storage));
  ran_.clear();
  recomputer_->replay(std::array<OpIndex, 4>{0, 2, 0, 1}, [](std::size_t, bool) {});
  EXPECT_EQ(ran_, "add1 add10 triple ");
  EXPECT_EQ(word(a.memory), 18u);
  EXPECT_EQ(word(b.memory), 16u);
}

TEST_F(RecomputerTest, BringsEverythingBackForAForkAndDropsNothingUntilItIsOver) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(a, 1, 1);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  ASSERT_TRUE(recomputer_->drop(b.storage));
  EXPECT_EQ(recomputer_->begin_fork(true), "");
  EXPECT_FALSE(engine_->is_dropped(a.storage));
  EXPECT_FALSE(engine_->is_dropped(b.storage));
  EXPECT_EQ(recomputer_->begin_fork(true), "") << "by another thread";
  recomputer_->end_fork();
  EXPECT_FALSE(recomputer_->drop(a.storage)) << "the child would find nothing there";
  recomputer_->end_fork();
  EXPECT_TRUE(recomputer_->drop(a.storage));
}

TEST_F(RecomputerTest, TellsWhatCannotComeBackForAFork) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  EXPECT_EQ(recomputer_->begin_fork(false),
            "a tensor that had to be recomputed cannot come back before a fork: the thread "
            "that forks runs an operator");
  runs_left_ = 0;
  EXPECT_EQ(recomputer_->begin_fork(true),
            "a tensor that had to be recomputed cannot come back before a fork: the operator "
            "cannot run");
  runs_left_ = kNoFailure;
  recomputer_->end_fork();
  recomputer_->end_fork();
  EXPECT_EQ(read(a), 6u);
}

}  // namespace
}  // namespace spillway::runtime
