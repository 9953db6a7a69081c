#include "support/emulated_cuda/order/access_check.h"
#include "support/golden_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace spillway::emulated {
namespace {

constexpr std::uintptr_t kBlock = 0x1000;
constexpr std::size_t kBytes = 256;

// Two streams, one block of memory.
class TwoStreams : public testing::Test {
 protected:
  std::string used(int stream, Use kind, const char* what) {
    check_.begin(stream);
    const auto found = check_.use(stream, kBlock, kBytes, kind, what);
    return found ? found->text() : "";
  }
  std::string taken(const char* what) {
    const auto found = check_.take_away(kBlock, kBytes, what);
    return found ? found->text() : "";
  }

  AccessCheck check_;
  const int compute_ = check_.add_stream("stream 0");
  const int copies_ = check_.add_stream("stream 1");
};

TEST_F(TwoStreams, OperatorThatDoesNotWaitForACopyInIsNamedWithIt) {
  EXPECT_EQ(used(copies_, Use::kWrite, "copy in"), "");
  EXPECT_EQ(used(compute_, Use::kRead, "aten::add"),
            "not ordered: 'aten::add' on stream 0 reads memory at 0x1000 that 'copy in' on stream "
            "1 wrote, and nothing "
            "makes the second wait; let stream 0 wait for an event that is recorded behind it on "
            "stream 1");
}

TEST_F(TwoStreams, AConflictAtTwoAddressesTellsBoth) {
  check_.begin(copies_);
  EXPECT_EQ(check_.use(copies_, kBlock, kBytes, Use::kWrite, "copy in", 0x70000), std::nullopt);
  check_.begin(compute_);
  GoldenPart().add(check_.use(compute_, kBlock + 16, 8, Use::kRead, "aten::add", 0x90000)->text());
}

TEST_F(TwoStreams, AddressesAreTakenAwayFromWhoUsesThem) {
  check_.begin(copies_);
  EXPECT_EQ(check_.use(copies_, kBlock, kBytes, Use::kRead, "copy out", 0x70000), std::nullopt);
  EXPECT_EQ(check_.take_away(kBlock, kBytes, "cuMemUnmap", 0x90000), std::nullopt);
  EXPECT_EQ(check_.ranges(), 1U) << "the copy is not forgotten";
  GoldenPart().add(check_.take_away(kBlock, kBytes, "cuMemUnmap", 0x70000)->text());
  check_.host_learns(check_.clock_of(copies_));
  EXPECT_EQ(check_.take_away(kBlock, kBytes, "cuMemUnmap", 0x90000), std::nullopt);
  EXPECT_EQ(check_.ranges(), 0U);
}

TEST_F(TwoStreams, CopyOutThatDoesNotWaitForTheOperatorIsNamed) {
  EXPECT_EQ(used(compute_, Use::kWrite, "aten::add"), "");
  GoldenPart().add(used(copies_, Use::kRead, "copy out"));
}

TEST_F(TwoStreams, EarlyReuseIsNamed) {
  EXPECT_EQ(used(copies_, Use::kRead, "copy out"), "");
  GoldenPart().add(used(compute_, Use::kWrite, "aten::fill_"));
}

TEST_F(TwoStreams, EarlyUnmappingIsNamed) {
  EXPECT_EQ(used(copies_, Use::kRead, "copy out"), "");
  GoldenPart().add(taken("cuMemUnmap"));
}

TEST_F(TwoStreams, AnEventOrdersWhatIsBeforeItWithWhatWaits) {
  EXPECT_EQ(used(copies_, Use::kWrite, "copy in"), "");
  const Clock event = check_.clock_of(copies_);
  check_.wait(compute_, event);
  EXPECT_EQ(used(compute_, Use::kWrite, "aten::add"), "");
  check_.host_learns(check_.clock_of(compute_));
  EXPECT_EQ(taken("cuMemUnmap"), "");
}

TEST_F(TwoStreams, AnEventDoesNotOrderWhatIsBehindIt) {
  const Clock event = check_.clock_of(copies_);
  EXPECT_EQ(used(copies_, Use::kWrite, "copy in"), "");
  check_.wait(compute_, event);
  EXPECT_NE(used(compute_, Use::kRead, "aten::add"), "");
}

TEST_F(TwoStreams, WhatTheHostHasWaitedForIsBeforeAllThatItSubmits) {
  EXPECT_EQ(used(copies_, Use::kWrite, "copy in"), "");
  check_.host_learns(check_.clock_of(copies_));
  EXPECT_EQ(used(compute_, Use::kWrite, "aten::add"), "");
}

TEST_F(TwoStreams, ReadsNeedNoOrder) {
  EXPECT_EQ(used(copies_, Use::kRead, "copy out"), "");
  EXPECT_EQ(used(compute_, Use::kRead, "aten::add"), "");
}

TEST_F(TwoStreams, AnOldReadIsRememberedBesideThatOfAnotherStream) {
  EXPECT_EQ(used(copies_, Use::kRead, "copy out"), "");
  EXPECT_EQ(used(compute_, Use::kRead, "aten::add"), "");
  GoldenPart().add(used(compute_, Use::kWrite, "aten::mul_"));
}

TEST_F(TwoStreams, ThePartThatOverlapsIsNamed) {
  check_.begin(copies_);
  EXPECT_FALSE(check_.use(copies_, kBlock + 128, 64, Use::kWrite, "copy in"));
  check_.begin(compute_);
  EXPECT_FALSE(check_.use(compute_, kBlock, 128, Use::kWrite, "before it"));
  EXPECT_FALSE(check_.use(compute_, kBlock + 192, 64, Use::kWrite, "behind it"));
  const auto found = check_.use(compute_, kBlock, kBytes, Use::kWrite, "all of it");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->address, kBlock + 128);
}

TEST_F(TwoStreams, MemoryThatWasTakenAwayBeginsANewHistory) {
  EXPECT_EQ(used(copies_, Use::kWrite, "copy in"), "");
  check_.host_learns(check_.clock_of(copies_));
  EXPECT_EQ(taken("cuMemUnmap"), "");
  EXPECT_EQ(check_.ranges(), 0U);
}

TEST_F(TwoStreams, AWriteMakesOneRangeOfMany) {
  for (std::uintptr_t at = 0; at < kBytes; at += 16) {
    check_.begin(compute_);
    EXPECT_FALSE(check_.use(compute_, kBlock + at, 16, Use::kWrite, "part"));
  }
  EXPECT_EQ(check_.ranges(), kBytes / 16);
  EXPECT_EQ(used(compute_, Use::kWrite, "all"), "");
  EXPECT_EQ(check_.ranges(), 1U);
}

// The same rules by another way: what happens before what is a graph, and order is a path in it.
class Graph {
 public:
  int add(const std::vector<int>& after) {
    std::set<int> before;
    for (int node : after) {
      if (node < 0) continue;
      before.insert(node);
      before.insert(before_[static_cast<std::size_t>(node)].begin(),
                    before_[static_cast<std::size_t>(node)].end());
    }
    before_.push_back(std::move(before));
    return static_cast<int>(before_.size()) - 1;
  }
  bool ordered(int earlier, int later) const {
    return before_[static_cast<std::size_t>(later)].count(earlier) != 0;
  }

 private:
  std::vector<std::set<int>> before_;
};

struct GraphUse {
  int stream;  // -1: the host.
  int node;
  std::uintptr_t begin, end;
  bool writes;
  std::string what;
};

// A random program of streams, events and waits of the host, on both. A correct one waits for what
// each step needs, but for the wait number `skipped`.
class RandomProgram {
 public:
  enum class Waits { kAtRandom, kAsNeeded };
  RandomProgram(unsigned seed, Waits waits, int skipped = -1)
      : random_(seed), waits_(waits), skipped_(skipped) {
    for (int i = 0; i < kStreams; ++i) check_.add_stream("stream " + std::to_string(i));
  }

  // Runs to the first conflict, if there is one; both must agree on each step.
  void run(int steps) {
    for (int i = 0; i < steps && !ended_; ++i) {
      switch (pick(6)) {
        case 0: record(); break;
        case 1: wait(); break;
        case 2: host_waits(); break;
        case 3:
          if (pick(3) == 0) take_away(i);
          break;
        default: use(i); break;
      }
    }
  }

  bool conflicted() const { return ended_; }
  int needed_waits() const { return needed_; }

 private:
  static constexpr int kStreams = 4;
  struct Event {
    Clock clock;
    int node = -1;
  };

  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  std::pair<std::uintptr_t, std::size_t> bytes() {
    const auto begin = static_cast<std::uintptr_t>(pick(12));
    return {begin, static_cast<std::size_t>(1 + pick(5))};
  }

  void record() {
    const int stream = pick(kStreams);
    events_.push_back({check_.clock_of(stream), last_[stream]});
  }

  void wait() {
    if (events_.empty()) return;
    const Event& event = events_[static_cast<std::size_t>(pick(static_cast<int>(events_.size())))];
    const int stream = pick(kStreams);
    check_.wait(stream, event.clock);
    last_[stream] = graph_.add({last_[stream], event.node});
  }

  void host_waits() {
    if (events_.empty()) return;
    const Event& event = events_[static_cast<std::size_t>(pick(static_cast<int>(events_.size())))];
    check_.host_learns(event.clock);
    host_ = graph_.add({host_, event.node});
  }

  void use(int step) {
    const int stream = pick(kStreams);
    const auto [begin, size] = bytes();
    const bool writes = pick(2) == 0;
    const std::string what = "work " + std::to_string(step);
    last_[stream] = graph_.add({last_[stream], host_});
    wait_as_needed({stream, last_[stream], begin, begin + size, writes, what});
    check_.begin(stream);
    last_[stream] = graph_.add({last_[stream], host_});
    compare(check_.use(stream, begin, size, writes ? Use::kWrite : Use::kRead, what),
            {stream, last_[stream], begin, begin + size, writes, what});
  }

  // An event is recorded behind each earlier use that `mine` conflicts with, and waited for.
  void wait_as_needed(GraphUse mine) {
    if (waits_ != Waits::kAsNeeded) return;
    for (const GraphUse& old : conflicting(mine)) {
      if (graph_.ordered(old.node, mine.node) || old.node == mine.node || needed_++ == skipped_)
        continue;
      const int source = last_[old.stream];
      if (mine.stream < 0) {
        check_.host_learns(check_.clock_of(old.stream));
        mine.node = host_ = graph_.add({host_, source});
      } else {
        check_.wait(mine.stream, check_.clock_of(old.stream));
        mine.node = last_[mine.stream] = graph_.add({last_[mine.stream], host_, source});
      }
    }
  }

  std::vector<GraphUse> conflicting(const GraphUse& mine) const {
    std::vector<GraphUse> found;
    for (const GraphUse& old : uses_) {
      if (old.begin < mine.end && mine.begin < old.end && (old.writes || mine.writes))
        found.push_back(old);
    }
    return found;
  }

  void take_away(int step) {
    const auto [begin, size] = bytes();
    const std::string what = "unmap " + std::to_string(step);
    host_ = graph_.add({host_});
    wait_as_needed({-1, host_, begin, begin + size, true, what});
    compare(check_.take_away(begin, size, what), {-1, host_, begin, begin + size, true, what});
    if (ended_) return;
    // Nobody uses the bytes any more; who comes later has a new history there.
    std::vector<GraphUse> kept;
    for (const GraphUse& old : uses_) {
      GraphUse before = old;
      GraphUse behind = old;
      before.end = std::min<std::uintptr_t>(old.end, begin);
      behind.begin = std::max<std::uintptr_t>(old.begin, begin + size);
      for (const GraphUse& part : {before, behind}) {
        if (part.begin < part.end) kept.push_back(part);
      }
    }
    uses_ = std::move(kept);
  }

  void compare(const std::optional<Conflict>& found, const GraphUse& mine) {
    std::set<std::string> unordered;
    for (const GraphUse& old : conflicting(mine)) {
      if (!graph_.ordered(old.node, mine.node)) unordered.insert(old.what);
    }
    EXPECT_EQ(found.has_value(), !unordered.empty()) << mine.what;
    if (found) {
      EXPECT_EQ(found->later, mine.what);
      EXPECT_EQ(unordered.count(found->earlier), 1U) << found->text();
    }
    ended_ = found.has_value() || !unordered.empty();
    uses_.push_back(mine);
  }

  std::mt19937 random_;
  const Waits waits_;
  const int skipped_;
  int needed_ = 0;
  AccessCheck check_;
  Graph graph_;
  int last_[kStreams] = {-1, -1, -1, -1};
  int host_ = -1;
  std::vector<Event> events_;
  std::vector<GraphUse> uses_;
  bool ended_ = false;
};

TEST(AccessCheck, FindsWhatAGraphOfThousandsOfRandomProgramsHas) {
  int conflicts = 0;
  for (unsigned seed = 0; seed < 5000; ++seed) {
    RandomProgram program(seed, RandomProgram::Waits::kAtRandom);
    program.run(60);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    conflicts += program.conflicted() ? 1 : 0;
  }
  EXPECT_GT(conflicts, 4000);
}

TEST(AccessCheck, IsSilentOnThousandsOfCorrectProgramsAndFindsTheWaitThatIsSkipped) {
  int skipped = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    RandomProgram correct(seed, RandomProgram::Waits::kAsNeeded);
    correct.run(200);
    ASSERT_FALSE(correct.conflicted()) << "seed " << seed;
    ASSERT_GT(correct.needed_waits(), 0) << "seed " << seed;
    const int which = static_cast<int>(seed) % correct.needed_waits();
    RandomProgram broken(seed, RandomProgram::Waits::kAsNeeded, which);
    broken.run(200);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << " without wait " << which;
    skipped += broken.conflicted() ? 1 : 0;
  }
  // Another wait may order the same by the way.
  EXPECT_GT(skipped, 1000);
}

}  // namespace
}  // namespace spillway::emulated
