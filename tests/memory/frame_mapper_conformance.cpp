#include "frame_mapper_conformance.h"

#include <gmock/gmock.h>

namespace spillway::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kLast = kPageBytes - 1;

INSTANTIATE_TEST_SUITE_P(Kinds, FrameMapperConformance,
                         ::testing::Values(MapperKind::kUserfaultfd, MapperKind::kUserfaultfdUser,
                                           MapperKind::kSignal),
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
  auto owner = make_owner(2);
  owner->bring_in(0, Access::kWrite);
  write_byte(owner->page(0) + 5, 1);
  owner->close_page(0);
  unsigned seen = 99;
  owner->before_serving = [&](Fault) {
    seen = read_byte(owner->page(0) + 5);
    return true;
  };
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

}  // namespace
}  // namespace spillway::memory
