#include "spillway/memory/frame_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>
#include <set>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/memory/host_pages.h"

namespace spillway::memory {
namespace {

constexpr std::size_t kSlots = 8;

class FramePoolTest : public ::testing::Test {
 protected:
  FramePoolTest() {
    void* memory = mmap(nullptr, kSlots * kPageBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base_ = static_cast<std::byte*>(memory);
    frames_ = HostFrameSource(base_);
  }
  ~FramePoolTest() override { munmap(base_, kSlots * kPageBytes); }

  std::size_t resident_bytes() const {
    std::vector<unsigned char> pages(kSlots * kPageBytes / 4096);
    mincore(base_, kSlots * kPageBytes, pages.data());
    return 4096 * static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(),
                                                         [](auto page) { return page & 1; }));
  }

  std::byte* base_;
  HostFrameSource frames_;
};

using FramePoolDeathTest = FramePoolTest;

/// Makes as many frames as others leave to it.
class ScarceFrames final : public FrameSource {
 public:
  explicit ScarceFrames(int left) : left_(left) {}
  void make_frame(SlotId slot) override {
    ++asked_;
    if (left_ == 0) throw Error("slot {} gets no frame", slot);
    --left_;
  }
  void drop_frame(SlotId) override { ++left_; }
  void leave(int more) { left_ += more; }
  int asked() const { return asked_; }

 private:
  int left_;
  int asked_ = 0;
};

TEST(FramePool, GoesOnWithTheFramesThatItsSourceMakes) {
  ScarceFrames source(2);
  FramePool pool(source, kSlots, 4);
  EXPECT_TRUE(pool.provide(2));
  EXPECT_EQ(pool.available_frames(), 4U);
  EXPECT_FALSE(pool.provide(3));
  EXPECT_EQ(pool.refusal(), "slot 2 gets no frame");
  EXPECT_EQ(pool.available_frames(), 2U);
  EXPECT_EQ(pool.existing_frames(), 2U);
  const SlotId first = pool.take_frame().value();
  ASSERT_TRUE(pool.take_frame().has_value());
  EXPECT_EQ(pool.take_frame(), std::nullopt);
  EXPECT_EQ(source.asked(), 3) << "nobody asks again and again";
  pool.put_frame(first);
  EXPECT_EQ(pool.available_frames(), 1U);
}

TEST(FramePool, AsksAgainForFramesThatWereRefused) {
  ScarceFrames source(1);
  FramePool pool(source, kSlots, 4);
  EXPECT_FALSE(pool.provide(4));
  source.leave(2);
  EXPECT_FALSE(pool.provide(2));
  pool.ask_again();
  EXPECT_EQ(pool.available_frames(), 4U);
  EXPECT_FALSE(pool.provide(4));
  EXPECT_EQ(pool.existing_frames(), 3U);
  pool.drop_free_frame();
  EXPECT_TRUE(pool.provide(3)) << "what was given back can be had again";
}

TEST_F(FramePoolTest, MakesFramesOnFirstNeedUpToTheLimit) {
  FramePool pool(frames_, kSlots, 2);
  EXPECT_EQ(resident_bytes(), 0U);
  EXPECT_EQ(pool.available_frames(), 2U);
  const auto first = pool.take_frame();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(resident_bytes(), kPageBytes);
  ASSERT_TRUE(pool.take_frame().has_value());
  EXPECT_EQ(pool.take_frame(), std::nullopt);
  EXPECT_EQ(pool.existing_frames(), 2U);
  EXPECT_EQ(pool.available_frames(), 0U);
}

TEST_F(FramePoolTest, RecyclesTheWarmestFrameWithoutClearingIt) {
  FramePool pool(frames_, kSlots, 3);
  const SlotId first = pool.take_frame().value();
  const SlotId second = pool.take_frame().value();
  frames_.address(second)[17] = std::byte(5);
  pool.put_frame(first);
  pool.put_frame(second);
  EXPECT_EQ(pool.free_frames(), 2U);
  EXPECT_EQ(pool.take_frame(), second);
  EXPECT_EQ(frames_.address(second)[17], std::byte(5));
  EXPECT_EQ(pool.existing_frames(), 2U);
}

TEST_F(FramePoolTest, LoweringTheLimitGivesFreeFramesBackAtOnceAndOthersOnReturn) {
  FramePool pool(frames_, kSlots, 4);
  std::vector<SlotId> taken;
  for (int i = 0; i < 4; ++i) taken.push_back(pool.take_frame().value());
  pool.put_frame(taken[0]);
  pool.put_frame(taken[1]);
  pool.set_limit(1);
  EXPECT_EQ(pool.free_frames(), 0U);
  EXPECT_EQ(pool.existing_frames(), 2U);
  EXPECT_EQ(resident_bytes(), 2 * kPageBytes);
  pool.put_frame(taken[2]);
  EXPECT_EQ(pool.existing_frames(), 1U);
  EXPECT_EQ(pool.free_frames(), 0U);
  pool.put_frame(taken[3]);
  EXPECT_EQ(pool.free_frames(), 1U);
  EXPECT_EQ(resident_bytes(), kPageBytes);
  pool.set_limit(kSlots);
  EXPECT_EQ(pool.available_frames(), kSlots);
}

TEST_F(FramePoolTest, AForgottenFrameMakesRoomForANewOne) {
  FramePool pool(frames_, kSlots, 1);
  const SlotId slot = pool.take_frame().value();
  pool.put_empty_slot(slot);
  EXPECT_EQ(pool.take_frame(), std::nullopt);
  pool.forget_frame();
  EXPECT_TRUE(pool.take_frame().has_value());
}

TEST_F(FramePoolTest, RenewingReplacesTheMemoryOfFramesThatWereAtRestWhenTheyAreTaken) {
  FramePool pool(frames_, kSlots, 2);
  const SlotId kept = pool.take_frame().value();
  const SlotId renewed = pool.take_frame().value();
  frames_.address(kept)[0] = std::byte(1);
  frames_.address(renewed)[0] = std::byte(2);
  pool.put_frame(renewed);
  pool.renew_free_frames();
  EXPECT_EQ(frames_.address(renewed)[0], std::byte(2)) << "forking is cheap";
  pool.put_frame(kept);
  ASSERT_EQ(pool.take_frame(), kept);
  EXPECT_EQ(frames_.address(kept)[0], std::byte(1)) << "came back after the fork";
  ASSERT_EQ(pool.take_frame(), renewed);
  EXPECT_EQ(frames_.address(renewed)[0], std::byte(0));
  EXPECT_EQ(resident_bytes(), 2 * kPageBytes);
  frames_.address(renewed)[0] = std::byte(3);
  pool.put_frame(renewed);
  ASSERT_EQ(pool.take_frame(), renewed);
  EXPECT_EQ(frames_.address(renewed)[0], std::byte(3)) << "once";
}

TEST_F(FramePoolDeathTest, NoticesAFrameThatComesBackTwice) {
  FramePool pool(frames_, kSlots, 2);
  const SlotId slot = pool.take_frame().value();
  pool.put_frame(slot);
  EXPECT_DEATH(pool.put_frame(slot), "");
  EXPECT_DEATH(pool.forget_frame(), "");
}

// Frames wander: taken, mapped (the slot stays behind empty), unmapped into another slot, returned.
TEST_F(FramePoolTest, RandomOperationsAgreeWithAModel) {
  FramePool pool(frames_, kSlots, kSlots);
  std::mt19937 random(11);
  std::size_t limit = kSlots;
  std::size_t mapped = 0;
  std::vector<SlotId> taken;
  for (int step = 0; step < 5000; ++step) {
    const std::size_t existed = pool.existing_frames();
    switch (random() % 6) {
      case 0:
      case 1: {
        const bool possible = pool.free_frames() > 0 || existed < limit;
        const auto slot = pool.take_frame();
        ASSERT_EQ(slot.has_value(), possible);
        if (slot) taken.push_back(*slot);
        break;
      }
      case 2:
        if (taken.empty()) break;
        pool.put_empty_slot(taken.back());
        taken.pop_back();
        ++mapped;
        break;
      case 3:
        if (mapped == 0) break;
        taken.push_back(pool.take_empty_slot());
        --mapped;
        break;
      case 4:
        if (taken.empty()) break;
        pool.put_frame(taken.front());
        taken.erase(taken.begin());
        ASSERT_EQ(pool.existing_frames(), existed > limit ? existed - 1 : existed);
        break;
      default:
        if (random() % 4 == 0 && mapped > 0) {
          pool.forget_frame();
          --mapped;
        } else {
          limit = random() % (kSlots + 1);
          pool.set_limit(limit);
        }
    }
    ASSERT_EQ(pool.existing_frames(), pool.free_frames() + taken.size() + mapped);
    ASSERT_EQ(pool.limit(), limit);
    ASSERT_TRUE(pool.existing_frames() <= limit || pool.free_frames() == 0);
    ASSERT_EQ(std::set(taken.begin(), taken.end()).size(), taken.size());
  }
}

}  // namespace
}  // namespace spillway::memory
