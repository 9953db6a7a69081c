#include "replay_verdicts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

namespace spillway::torch_binding {
namespace {

using Advice = ReplayVerdicts::Advice;

const c10::FunctionSchema& neg() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("aten::neg", "").schema();
}

TEST(ReplayVerdicts, AskForOneComparisonOfAKind) {
  ReplayVerdicts verdicts;
  EXPECT_EQ(verdicts.begin(1, neg(), false), Advice::kCompare);
  EXPECT_EQ(verdicts.begin(1, neg(), true), Advice::kRecord) << "while another thread compares it";
  verdicts.settle(1, true);
  EXPECT_EQ(verdicts.begin(1, neg(), true), Advice::kRecord);
  EXPECT_EQ(verdicts.begin(2, neg(), false), Advice::kCompare);
  verdicts.settle(2, false);
  EXPECT_EQ(verdicts.begin(2, neg(), true), Advice::kLeave);
  const runtime::VerifiedReplays sum = verdicts.sum();
  EXPECT_EQ(sum.equal_kinds, 1u);
  EXPECT_EQ(sum.differing_kinds, 1u);
  EXPECT_EQ(sum.operators.at("aten::neg"), 1u);
}

TEST(ReplayVerdicts, AskAgainWhereNothingWasFoundOut) {
  ReplayVerdicts verdicts;
  verdicts.begin(1, neg(), false);
  verdicts.forget(1);
  EXPECT_EQ(verdicts.begin(1, neg(), false), Advice::kCompare);
}

// It was tried at every call.
TEST(ReplayVerdicts, RememberWhatCannotBeRecordedUntilAPlanWantsIt) {
  ReplayVerdicts verdicts;
  verdicts.begin(1, neg(), false);
  verdicts.note_unrecordable(1);
  EXPECT_EQ(verdicts.begin(1, neg(), false), Advice::kRecord);
  EXPECT_EQ(verdicts.begin(1, neg(), true), Advice::kCompare);
  verdicts.settle(1, true);
  EXPECT_EQ(verdicts.begin(1, neg(), true), Advice::kRecord);
}

TEST(ReplayVerdicts, LeaveNewKindsAloneOnceThereAreTooMany) {
  ReplayVerdicts verdicts(2);
  for (const std::uint64_t kind : {1, 2}) {
    EXPECT_EQ(verdicts.begin(kind, neg(), true), Advice::kCompare);
    verdicts.settle(kind, true);
  }
  EXPECT_EQ(verdicts.begin(3, neg(), true), Advice::kLeaveFull);
  EXPECT_EQ(verdicts.begin(2, neg(), true), Advice::kRecord);
}

}  // namespace
}  // namespace spillway::torch_binding
