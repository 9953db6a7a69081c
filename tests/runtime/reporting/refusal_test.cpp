#include "spillway/runtime/reporting/refusal.h"

#include <gtest/gtest.h>

#include "spillway/swap/swap_errors.h"

namespace spillway::runtime {
namespace {

std::string told(const Error& error) {
  return sentence_of(refusal_by(error, "aten::mm(float[2])"));
}

TEST(Refusal, OfAStoreThatTakesNoMoreAsksForRoom) {
  const swap::StoreError error("No space left in {} (disk full)", "/scratch");
  EXPECT_EQ(refusal_by(error, "x").cause, RefusalCause::kStore);
  EXPECT_EQ(
      told(error),
      "No space left in /scratch (disk full), needed for aten::mm(float[2]). All tensors are "
      "still there, but the trainer cannot go on: name a directory with more room, or a second "
      "one, with --nvme.");
}

TEST(Refusal, OfWhatCannotBeReadBackPromisesNothing) {
  const swap::UnreadableError error("wrong bytes in extent 3 of /scratch");
  EXPECT_EQ(refusal_by(error, "x").cause, RefusalCause::kUnreadable);
  EXPECT_EQ(
      told(error),
      "aten::mm(float[2]) needs a tensor that cannot be read back: wrong bytes in extent 3 of "
      "/scratch. The trainer cannot go on without it: go on from the last checkpoint, with a "
      "directory on another disk (--nvme).");
}

TEST(Refusal, OfWhatCannotBeRecomputedNamesTheSwitch) {
  const RecomputeError error("another run of aten::relu failed: boom");
  EXPECT_EQ(refusal_by(error, "x").cause, RefusalCause::kRecomputation);
  EXPECT_EQ(told(error),
            "aten::mm(float[2]) needs a dropped tensor that cannot be recomputed: another run of "
            "aten::relu failed: boom. The trainer cannot go on without it: go on from the last "
            "checkpoint with --recompute off, which only moves tensors.");
}

TEST(Refusal, OfWhatTheKernelKeepsNamesTheBudget) {
  const swap::PinnedByKernelError error("the kernel keeps {}", 4_MiB);
  EXPECT_EQ(refusal_by(error, "x").cause, RefusalCause::kPinned);
  EXPECT_EQ(told(error),
            "the kernel keeps 4.00 MiB, needed for aten::mm(float[2]). All tensors are still "
            "there, but the trainer cannot go on: allow more with --budget, or run it without "
            "locked memory.");
}

TEST(Refusal, OfUsedUpAddressesNamesNoLimitOfItsOwn) {
  const swap::AddressesError error("no {} of addresses are left; the limit is {}", 4_MiB, 1_GiB);
  EXPECT_EQ(refusal_by(error, "x").cause, RefusalCause::kAddresses);
  EXPECT_EQ(told(error),
            "aten::mm(float[2]) cannot have its tensors: no 4.00 MiB of addresses are left; the "
            "limit is 1.00 GiB. All tensors are still there, but the trainer cannot go on: allow "
            "more addresses where a limit is named, or let it hold less: tensors on disk take "
            "addresses, too.");
}

TEST(RefusalCause, HasANameForScripts) {
  EXPECT_EQ(name_of(RefusalCause::kNone), "");
  EXPECT_EQ(name_of(RefusalCause::kBudget), "budget");
  EXPECT_EQ(name_of(RefusalCause::kStore), "store");
  EXPECT_EQ(name_of(RefusalCause::kUnreadable), "unreadable");
  EXPECT_EQ(name_of(RefusalCause::kRecomputation), "recomputation");
  EXPECT_EQ(name_of(RefusalCause::kPinned), "pinned");
  EXPECT_EQ(name_of(RefusalCause::kAddresses), "addresses");
}

}  // namespace
}  // namespace spillway::runtime
