// Writes past the operators to what dropped storages are made of.
#include "recomputer_cases.h"
#include "spillway/memory/frame_mapper.h"
#include "support/hand_write.h"
#include "support/residency_orders.h"

#include <thread>

namespace spillway::runtime {
namespace {

bool is_viable(memory::MapperKind kind) {
  for (const memory::MapperProbe& probe : memory::probe_mappers())
    if (probe.kind == kind) return probe.is_viable;
  return false;
}

/// Writes past the operators, which are told of in two ways.
class RecomputerHandWriteTest : public RecomputerTest,
                                public ::testing::WithParamInterface<memory::MapperKind> {
 protected:
  RecomputerHandWriteTest() : RecomputerTest(is_viable(GetParam()) ? GetParam() : best_mapper()) {}
  void SetUp() override {
    if (!is_viable(GetParam())) GTEST_SKIP() << "this mapper does not work here";
  }

  std::uint64_t faults() const { return engine_->statistics().faults; }

  void push_out(const Tensor& tensor) {
    const auto left = [this] {
      const swap::SwapStatistics now = engine_->statistics();
      return now.spilled + now.left_clean;
    };
    const Bytes before = left();
    write_out(*engine_, tensor.storage, kPages);
    while (left() < before + kPageSize * kPages) std::this_thread::yield();
  }
};

TEST_P(RecomputerHandWriteTest, KeepsAResultThatWasChanged) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(a, 10, 1);
  put(word(a.memory), 70);
  EXPECT_EQ(faults(), 1u);
  EXPECT_FALSE(recomputer_->drop(a.storage)) << "no operator would bring that back";
  EXPECT_FALSE(recomputer_->drop(b.storage)) << "it was made of what was there before";
  EXPECT_EQ(recomputer_->counts().refused_drops, 2u);
  const Tensor c = add(a, 100, 2);
  ASSERT_TRUE(recomputer_->drop(c.storage));
  EXPECT_EQ(read(c), 170u) << "made of the change";
}

TEST_P(RecomputerHandWriteTest, KeepsWhatWasMadeOfAnIngredientThatWasChanged) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  put(word(x.memory), 77);
  EXPECT_FALSE(recomputer_->drop(a.storage));
  EXPECT_EQ(read(a), 6u);
  EXPECT_EQ(recomputer_->counts().refused_drops, 1u);
}

TEST_P(RecomputerHandWriteTest, ComputesAgainBeforeAnIngredientChanges) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(a, 10, 1);
  free(a);
  ASSERT_TRUE(recomputer_->drop(b.storage));
  put(word(x.memory), 77);
  EXPECT_FALSE(engine_->is_dropped(b.storage));
  EXPECT_EQ(word(b.memory), 16u);
  EXPECT_EQ(word(x.memory), 77u);
  EXPECT_EQ(faults(), 1u);
  EXPECT_EQ(recomputer_->counts().unplanned_replays, 2u);
}

TEST_P(RecomputerHandWriteTest, SeesTheChangeOfAnIngredientThatWasOut) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  push_out(x);
  EXPECT_EQ(word(x.memory), 5u) << "it comes in for a look";
  put(word(x.memory), 77);
  EXPECT_FALSE(engine_->is_dropped(a.storage));
  EXPECT_EQ(read(a), 6u);
}

TEST_P(RecomputerHandWriteTest, SeesTheChangeOfWhatIsDroppedItself) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(a, 10, 1);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  ASSERT_TRUE(recomputer_->drop(b.storage));
  put(word(a.memory), 70);
  EXPECT_EQ(read(b), 16u) << "of what was there before";
  EXPECT_EQ(read(a), 70u);
  EXPECT_FALSE(recomputer_->drop(a.storage));
}

TEST_P(RecomputerHandWriteTest, TakesReadsAndAnnouncedWritesForNone) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  triple(a, 1);
  const Tensor b = add(a, 10, 2);
  EXPECT_EQ(word(x.memory) + word(a.memory), 23u);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  ASSERT_TRUE(recomputer_->drop(b.storage));
  EXPECT_EQ(word(x.memory), 5u);
  EXPECT_EQ(read(b), 28u);
  announce(x, true, false);
  put(word(x.memory), 77);
  EXPECT_EQ(read(a), 18u);
  EXPECT_EQ(faults(), 0u);
  EXPECT_EQ(recomputer_->counts().refused_drops, 0u);
}

TEST_P(RecomputerHandWriteTest, SaysWhatIsLostWhenNothingCouldComeBackBefore) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  runs_left_ = 0;
  put(word(x.memory), 77);
  runs_left_ = kNoFailure;
  EXPECT_EQ(refusal_of(a),
            "a tensor from before the recorded operators, of which it is computed, has changed "
            "since (the operator cannot run)");
  EXPECT_TRUE(engine_->is_dropped(a.storage));
}

TEST_P(RecomputerHandWriteTest, BringsBackWhatItCanWhereAnotherTensorCannotComeBack) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(x, 10, 1);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  ASSERT_TRUE(recomputer_->drop(b.storage));
  failures_left_ = 1;
  put(word(x.memory), 77);
  const bool is_a_lost = engine_->is_dropped(a.storage);
  EXPECT_NE(is_a_lost, engine_->is_dropped(b.storage));
  EXPECT_EQ(read(is_a_lost ? b : a), is_a_lost ? 15U : 6U);
  EXPECT_THROW(read(is_a_lost ? a : b), RecomputeError);
}

TEST_P(RecomputerHandWriteTest, GivesTheReasonOfThatWriteAlone) {
  const Tensor x = tensor(5);
  const Tensor y = tensor(6);
  const Tensor a = add(x, 1, 0);
  const Tensor b = add(y, 1, 1);
  ASSERT_TRUE(recomputer_->drop(a.storage));
  ASSERT_TRUE(recomputer_->drop(b.storage));
  failures_left_ = 1;
  put(word(x.memory), 77);
  recomputer_->note_unrecorded_writes({&y.storage, 1});
  EXPECT_EQ(refusal_of(b),
            "a tensor from before the recorded operators, of which it is computed, has "
            "changed since");
}

TEST_P(RecomputerHandWriteTest, HasNothingToSeeToAfterTheStep) {
  const Tensor x = tensor(5);
  const Tensor a = add(x, 1, 0);
  recomputer_->end_step();
  put(word(x.memory), 77);
  put(word(a.memory), 70);
  const Tensor b = add(x, 1, 0);
  ASSERT_TRUE(recomputer_->drop(b.storage));
  EXPECT_EQ(read(b), 78u);
}

TEST_P(RecomputerHandWriteTest, KeepsWhatASystemCallMayChangeMeanwhile) {
  const Tensor x = tensor(5);
  swap::PinSet call(swap::Hold::kSystemCall);
  const RangeUse use{x.storage, kPages, true};
  engine_->pin(call, {&use, 1});
  const Tensor a = add(x, 1, 0);
  put(word(x.memory), 77);
  engine_->unpin(call);
  EXPECT_FALSE(recomputer_->drop(a.storage));
}

INSTANTIATE_TEST_SUITE_P(Mappers, RecomputerHandWriteTest,
                         ::testing::Values(memory::MapperKind::kUserfaultfd,
                                           memory::MapperKind::kSignal),
                         [](const auto& kind) {
                           return kind.param == memory::MapperKind::kSignal ? "signal"
                                                                            : "userfaultfd";
                         });

}  // namespace
}  // namespace spillway::runtime
