#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "frame_mapper_conformance.h"
#include "spillway/base/error.h"
#include "support/sanitized.h"

namespace spillway::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kLast = kPageBytes - 1;

INSTANTIATE_TEST_SUITE_P(Kinds, FrameMapperConformance,
                         ::testing::Values(MapperKind::kUserfaultfd, MapperKind::kUserfaultfdUser,
                                           MapperKind::kSignal, MapperKind::kCopy),
                         kind_name);

TEST_P(FrameMapperConformance, MovesContentsInAndOut) {
  auto owner = make_owner(3);
  owner->bring_in(2, Access::kWrite);
  EXPECT_EQ(read_byte(owner->page(2)), 2U);
  EXPECT_EQ(read_byte(owner->page(2) + kLast), 2U);
  write_byte(owner->page(2) + 12345, 77);
  ASSERT_EQ(owner->move_out(2), MoveResult::kMoved);
  EXPECT_EQ(read_byte(owner->frame(2) + 12345), 77U);
  EXPECT_EQ(read_byte(owner->frame(2) + kLast), 2U);
  EXPECT_THAT(owner->take_faults(), IsEmpty());
}

TEST_P(FrameMapperConformance, ReportsAReadOfAnEmptyPage) {
  auto owner = make_owner(2);
  EXPECT_EQ(read_byte(owner->page(1) + kLast), 1U);
  EXPECT_THAT(owner->take_faults(), ElementsAre(Fault{1, Access::kRead}));
}

TEST_P(FrameMapperConformance, ReportsAWriteToAnEmptyPage) {
  auto owner = make_owner(2);
  write_byte(owner->page(1) + 1, 9);
  EXPECT_THAT(owner->take_faults(), ElementsAre(Fault{1, Access::kWrite}));
  EXPECT_EQ(read_byte(owner->page(1) + 1), 9U);
}

TEST_P(FrameMapperConformance, ReportsAForbiddenWriteBeforeItHappens) {
  std::atomic<unsigned> seen = 99;
  auto owner = make_owner(2);
  owner->bring_in(0, Access::kWrite);
  write_byte(owner->page(0) + 5, 1);
  owner->close_page(0);
  owner->ask_before_serving([&](Fault) {
    seen = read_byte(owner->page(0) + 5);
    return true;
  });
  write_byte(owner->page(0) + 5, 2);
  EXPECT_EQ(seen, 1U);
  EXPECT_THAT(owner->take_faults(), ElementsAre(Fault{0, Access::kWrite}));
  EXPECT_EQ(read_byte(owner->page(0) + 5), 2U);
}

TEST_P(FrameMapperConformance, APageMappedForReadingArrivesClosed) {
  auto owner = make_owner(1);
  owner->bring_in(0, Access::kRead);
  EXPECT_EQ(read_byte(owner->page(0)), 0U);
  EXPECT_THAT(owner->take_faults(), IsEmpty());
  write_byte(owner->page(0), 3);
  EXPECT_THAT(owner->take_faults(), ElementsAre(Fault{0, Access::kWrite}));
}

TEST_P(FrameMapperConformance, AWokenThreadTriesAgain) {
  std::atomic<int> ignored = 0;
  auto owner = make_owner(1);
  owner->ask_before_serving([&](Fault) {
    if (ignored == 3) return true;
    ++ignored;
    owner->mapper().wake(owner->page(0));
    return false;
  });
  EXPECT_EQ(read_byte(owner->page(0)), 0U);
  EXPECT_EQ(ignored, 3);
  EXPECT_EQ(owner->take_faults().size(), 1U);
}

TEST_P(FrameMapperConformance, ClosesAndOpensRunsOfPages) {
  std::array<std::atomic<bool>, 5> is_reported{};
  auto owner = make_owner(5);
  for (std::size_t i = 0; i < 5; ++i) owner->bring_in(i, Access::kWrite);
  owner->mapper().forbid_writes(owner->page(1), 3);
  owner->ask_before_serving([&](Fault fault) {
    is_reported[fault.page] = fault.access == Access::kWrite;
    owner->mapper().allow_writes(owner->page(1), 3);
    return false;
  });
  for (std::size_t i = 0; i < 5; ++i) write_byte(owner->page(i) + kLast, 8);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(is_reported[i], i == 1) << "page " << i;
}

TEST_P(FrameMapperConformance, GathersScatteredFramesUnderConsecutivePages) {
  constexpr std::size_t kPages = 24;
  auto owner = make_owner(kPages, 4);
  std::vector<std::size_t> order(kPages);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(7);
  for (int round = 0; round < 3; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) owner->bring_in(i, Access::kWrite);
    for (std::size_t i = 0; i < kPages; ++i) {
      EXPECT_EQ(read_byte(owner->page(i)), i);
      EXPECT_EQ(read_byte(owner->page(i) + kLast), i);
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) ASSERT_EQ(owner->move_out(i), MoveResult::kMoved);
  }
  EXPECT_THAT(owner->take_faults(), IsEmpty());
}

TEST_P(FrameMapperConformance, HugePagesStayWhole) {
  constexpr std::size_t kPages = 8;
  auto owner = make_owner(kPages, 0);
  const std::byte* const pool = owner->in_slot(SlotId(0));
  const std::size_t huge_before = huge_bytes(pool, pool + kPages * kPageBytes);
  if (huge_before == 0) GTEST_SKIP() << "the kernel gives no transparent huge pages here";
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < kPages; ++i) owner->bring_in(i, Access::kRead);
    EXPECT_EQ(huge_bytes(owner->page(0), owner->page(kPages)), huge_before);
    for (std::size_t i = 0; i < kPages; ++i) owner->open_page(i);
    for (std::size_t i = 0; i < kPages; ++i) write_byte(owner->page(i) + 4096, 1);
    for (std::size_t i = 0; i < kPages; ++i) ASSERT_EQ(owner->move_out(i), MoveResult::kMoved);
    EXPECT_EQ(huge_bytes(pool, pool + kPages * kPageBytes), huge_before);
  }
}

TEST_P(FrameMapperConformance, EmptyPagesTakeNoMappingsHoweverOftenTheyWereUsed) {
  constexpr std::size_t kPages = 16;
  auto owner = make_owner(kPages);
  const std::byte* const pool = owner->in_slot(SlotId(0));
  for (std::size_t round = 0; round < 4; ++round) {
    for (std::size_t i = 1; i < kPages; ++i)  // All but one, beside which the others must not show.
      owner->bring_in((5 * i + 7) % kPages, i % 2 == 0 ? Access::kRead : Access::kWrite);
    for (std::size_t i = 0; i < kPages; ++i)
      ASSERT_EQ(owner->move_out((3 * i + round) % kPages), MoveResult::kMoved);
  }
  EXPECT_EQ(mappings_between(owner->page(0), owner->page(kPages)), 1U);
  // And with every other page in, no more than the limit reckons with (pool_limit).
  for (std::size_t i = 0; i < kPages; i += 2) owner->bring_in(i, Access::kRead);
  EXPECT_LE(mappings_between(owner->page(0), owner->page(kPages)), kPages);
  EXPECT_LE(mappings_between(pool, pool + (kPages + 1) * kPageBytes),
            GetParam() == MapperKind::kSignal ? kPages + 1 : 1U);
}

/// Ends the process with code 3 and the refusal on stderr.
void reserve_beyond_the_limit(MapperKind kind) {
  PageOwner sink(make_frame_mapper(kind), 1, 1);
  auto mapper = make_frame_mapper(kind);
  const rlimit limit{rlim_t{1} << 30, rlim_t{1} << 30};
  setrlimit(RLIMIT_AS, &limit);
  try {
    mapper->reserve(1_TiB, kPageSize, sink);
  } catch (const UnsupportedError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(3);
  }
}

TEST_P(FrameMapperConformance, AnAddressSpaceLimitIsNamed) {
  if (kIsSanitized)
    GTEST_SKIP() << "the sanitizer itself cannot go on under a limit of its address space";
  EXPECT_EXIT(reserve_beyond_the_limit(GetParam()), ::testing::ExitedWithCode(3),
              "cannot reserve 1\\.00 TiB .*RLIMIT_AS .ulimit -v. is 1\\.00 GiB");
}

/// What the owner and its pages must look like, kept in plain variables.
struct ModelPage {
  enum { kOut, kOpen, kClosed } state = kOut;
  std::array<unsigned, 4> bytes{};
};

TEST_P(FrameMapperConformance, RandomOperationsAgreeWithAModel) {
  constexpr std::size_t kPages = 12;
  constexpr std::array<std::size_t, 4> kOffsets{0, 4095, kPageBytes / 2, kLast};
  auto owner = make_owner(kPages, 3);
  std::vector<ModelPage> model(kPages);
  for (std::size_t i = 0; i < kPages; ++i) model[i].bytes = {unsigned(i), 0, 0, unsigned(i)};
  std::mt19937 random(20261121);
  for (int step = 0; step < tries(20000, 5000); ++step) {
    const std::size_t index = random() % kPages;
    const std::size_t spot = random() % kOffsets.size();
    ModelPage& expected = model[index];
    std::byte* const address = owner->page(index) + kOffsets[spot];
    std::vector<Fault> faults;
    switch (random() % 7) {
      case 0:
        owner->bring_in(index, Access::kRead);
        if (expected.state == ModelPage::kOut) expected.state = ModelPage::kClosed;
        break;
      case 1:
        owner->bring_in(index, Access::kWrite);
        if (expected.state == ModelPage::kOut) expected.state = ModelPage::kOpen;
        break;
      case 2:
        ASSERT_EQ(owner->move_out(index), MoveResult::kMoved);
        expected.state = ModelPage::kOut;
        break;
      case 3:
        owner->close_page(index);
        if (expected.state == ModelPage::kOpen) expected.state = ModelPage::kClosed;
        break;
      case 4:
        owner->open_page(index);
        if (expected.state == ModelPage::kClosed) expected.state = ModelPage::kOpen;
        break;
      case 5:
        ASSERT_EQ(read_byte(address), expected.bytes[spot]) << "step " << step;
        if (expected.state == ModelPage::kOut) {
          faults = {{index, Access::kRead}};
          expected.state = ModelPage::kClosed;
        }
        break;
      default:
        write_byte(address, step & 0xff);
        expected.bytes[spot] = step & 0xff;
        if (expected.state != ModelPage::kOpen) faults = {{index, Access::kWrite}};
        expected.state = ModelPage::kOpen;
        break;
    }
    ASSERT_EQ(owner->take_faults(), faults) << "step " << step;
  }
}

}  // namespace
}  // namespace spillway::memory
