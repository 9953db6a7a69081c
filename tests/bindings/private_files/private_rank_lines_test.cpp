#include "private_rank_lines.h"

#include <string>

#include "gtest/gtest.h"

namespace spillway::cli {
namespace {

TEST(SpillwayLines, ComeOutWithTheRank) {
  SpillwayLines lines("3");
  EXPECT_EQ(lines.of("[spillway] warning: one\nmine\n[spillway] steps 4\n"),
            "[spillway 3] warning: one\n[spillway 3] steps 4\n");
  EXPECT_EQ(lines.of("[spillway 3] info: has it\n[spillway_x] has not\n"),
            "[spillway 3] info: has it\n");
}

TEST(SpillwayLines, AreFoundBehindALineThatIsStillOpen) {
  SpillwayLines lines("3");
  EXPECT_EQ(lines.of(" 50 % done[spillway] error: now\n"), "[spillway 3] error: now\n");
  EXPECT_EQ(lines.of(" 60 %\r 70 %\r[spillway] step 7\r"), "[spillway 3] step 7\n");
}

TEST(SpillwayLines, ComeInPieces) {
  SpillwayLines lines("1");
  std::string shown;
  for (const char letter : std::string("other\n[spillway] a line\n[spillway] the last"))
    shown += lines.of({&letter, 1});
  EXPECT_EQ(shown, "[spillway 1] a line\n");
  EXPECT_EQ(lines.rest(), "[spillway 1] the last\n");
  EXPECT_EQ(lines.rest(), "");
}

TEST(SpillwayLines, KeepTheEndOfWhatIsNotShown) {
  SpillwayLines lines("2");
  lines.of("one\ntwo\n\nthree\nframe #0: somewhere\n"
           "==== backtrace (tid: 7) ====\n 0  /lib/libucs.so.0(ucs_error+0x2dc) "
           "[0x7f]\nfour\n[spillway] warning: shown\n");
  const std::string begin = "[spillway 2] error: this rank has failed: ";
  const std::string all = begin + "one\n" + begin + "two\n" + begin + "three\n" + begin + "four\n";
  EXPECT_EQ(lines.last_words(), all);
  for (int i = 0; i < 28; ++i) lines.of("more\n");
  std::string latest = begin + "three\n" + begin + "four\n";
  for (int i = 0; i < 28; ++i) latest += begin + "more\n";
  EXPECT_EQ(lines.last_words(), latest);
}

TEST(SpillwayLines, KeepNothingWhereAReasonIsTold) {
  SpillwayLines lines("2");
  lines.of("one\n[spillway 2] error: a reason\ntwo\n");
  EXPECT_EQ(lines.last_words(), "");
}

TEST(SpillwayLines, ShowAtOnceWhyAProgramHasEndedBeforeOthers) {
  SpillwayLines lines("2");
  const std::string end = "[spillway 2] info: the program has ended on this rank, by other calls\n";
  EXPECT_EQ(lines.of("OSError: no space\n" + end),
            "[spillway 2] info: this rank said last: OSError: no space\n" + end);
  EXPECT_EQ(lines.of(end), end);
  EXPECT_EQ(lines.of("Abort(1) on node 2: application called MPI_Abort(comm, 1)\n"), "");
  EXPECT_EQ(lines.last_words(), "");
}

TEST(SpillwayLines, ShowAtOnceWhyMpiEndsTheJob) {
  SpillwayLines lines("2");
  const std::string begin = "[spillway 2] error: this rank has failed: ";
  EXPECT_EQ(lines.of("one\ntwo\nUCX ERROR: three\nAbort(9) on node 2: Other MPI error\ntrace\n"),
            begin + "one\n" + begin + "two\n" + begin + "UCX ERROR: three\n" + begin +
                "Abort(9) on node 2: Other MPI error\n");
  EXPECT_EQ(lines.last_words(), "");
}

TEST(SpillwayLines, AreCutWhereTheyHaveNoEnd) {
  SpillwayLines lines("1");
  EXPECT_EQ(lines.of(std::string(1 << 20, 'x')), "");
  EXPECT_EQ(lines.of("\n[spillway] after it\n"), "[spillway 1] after it\n");
  EXPECT_LE(lines.last_words().size(), std::size_t{1} << 17);
}

}  // namespace
}  // namespace spillway::cli
