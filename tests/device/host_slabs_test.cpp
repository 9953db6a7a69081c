#include "spillway/device/host_slabs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/device/cpu.h"
#include "support/sanitized.h"

namespace spillway::device {
namespace {

using testing::HasSubstr;

class HostSlabsTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device();
};

TEST_F(HostSlabsTest, HandsOutNoMoreThanItHas) {
  HostSlabs slabs(*device_, {.slab_size = 8_KiB, .slab_count = 3});
  std::vector<HostSlab> held;
  std::set<std::byte*> places;
  while (auto slab = slabs.take()) {
    places.insert(slab->span().data);
    held.push_back(std::move(*slab));
  }
  EXPECT_EQ(held.size(), 3u);
  EXPECT_EQ(places.size(), 3u);
  EXPECT_EQ(slabs.available(), 0u);
  std::byte* const last = held.back().span().data;
  held.pop_back();
  EXPECT_EQ(slabs.available(), 1u);
  const auto again = slabs.take();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->span().data, last) << "what was touched before is used first";
}

TEST_F(HostSlabsTest, ReturnsASlabOnceHoweverItMoved) {
  HostSlabs slabs(*device_, {.slab_size = 4_KiB, .slab_count = 2});
  {
    auto first = slabs.take();
    auto second = slabs.take();
    HostSlab moved(std::move(*first));
    *second = std::move(moved);
    EXPECT_EQ(slabs.available(), 0u) << "both are held until the scope ends";
  }
  EXPECT_EQ(slabs.available(), 2u);
}

TEST_F(HostSlabsTest, MayBeSharedByThreads) {
  HostSlabs slabs(*device_, {.slab_size = 4_KiB, .slab_count = 2});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&slabs, t] {
      for (int i = 0; i < 500; ++i) {
        const auto slab = slabs.take();
        if (!slab) continue;
        slab->span().data[0] = static_cast<std::byte>(t);
        EXPECT_EQ(slab->span().data[0], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(slabs.available(), 2u);
}

TEST_F(HostSlabsTest, RefusesSenselessSizes) {
  EXPECT_THROW(HostSlabs(*device_, {.slab_size = 5000_B, .slab_count = 1}), ConfigError);
  EXPECT_THROW(HostSlabs(*device_, {.slab_size = 0_B, .slab_count = 1}), ConfigError);
  EXPECT_THROW(HostSlabs(*device_, {.slab_size = 4_KiB, .slab_count = 0}), ConfigError);
}

TEST_F(HostSlabsTest, LieInTheMemoryThatTheyAreGivenUntilThePoolIsGone) {
  const auto given = std::make_shared<std::array<std::byte, 12288>>();
  Bytes asked;
  {
    HostSlabs slabs(*device_, {.slab_size = 4_KiB, .slab_count = 3, .memory = [&](Bytes size) {
                                 asked = size;
                                 return std::shared_ptr<std::byte>(given, given->data());
                               }});
    EXPECT_EQ(asked, 12_KiB);
    EXPECT_GT(given.use_count(), 1);
    const auto first = slabs.take();
    const auto second = slabs.take();
    EXPECT_EQ(first->span().data, given->data());
    EXPECT_EQ(second->span().data, given->data() + 4096);
  }
  EXPECT_EQ(given.use_count(), 1);
}

TEST_F(HostSlabsTest, PassOnThatMemoryIsRefused) {
  const auto refuse = [](Bytes size) -> std::shared_ptr<std::byte> {
    throw IoError("no {} here", size);
  };
  EXPECT_THROW(HostSlabs(*device_, {.slab_size = 4_KiB, .slab_count = 1, .memory = refuse}),
               IoError);
}

/// In a child, since a limit that was lowered cannot be raised again, and root knows none.
void end_without_pinning() {
  const rlimit few{.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
  if (::setrlimit(RLIMIT_MEMLOCK, &few) != 0) ::_exit(2);
  if (::getuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(3);
  const auto device = make_cpu_device();
  HostSlabs slabs(*device, {.slab_size = 1_MiB, .slab_count = 4, .pinning = Pinning::kPinned});
  const auto slab = slabs.take();
  slab->span().data[12345] = std::byte{1};
  const bool is_right = slabs.pinning() == Pinning::kPageable && slab.has_value();
  std::fprintf(stderr, "%s\n", slabs.why_pageable().c_str());
  ::_exit(is_right ? 0 : 1);
}

TEST_F(HostSlabsTest, GoesOnPageableWhereTheLimitRefuses) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers take mlock and do nothing";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_without_pinning(), testing::ExitedWithCode(0),
              "4.00 MiB cannot be locked in memory: .*may lock 64.0 KiB");
}

/// A device that pins nothing.
class Unpinning final : public Device {
 public:
  Unpinning() : Device({DeviceKind::kCuda, 3}, {}) {}

 private:
  MemoryInfo do_memory() const override { return {}; }
  std::byte* do_allocate(Bytes) override { return nullptr; }
  void do_release(DeviceSpan) noexcept override {}
  std::unique_ptr<Queue> do_make_queue(const std::string&) override { return nullptr; }
  std::string do_pin_host(DeviceSpan) override { return {}; }
  void do_unpin_host(DeviceSpan) noexcept override {}
};

TEST_F(HostSlabsTest, AsksNoDeviceThatCannotPin) {
  Unpinning device;
  HostSlabs slabs(device, {.slab_size = 4_KiB, .slab_count = 1, .pinning = Pinning::kPinned});
  EXPECT_EQ(slabs.pinning(), Pinning::kPageable);
  EXPECT_EQ(slabs.why_pageable(), "cuda:3 cannot pin memory of the host");
}

}  // namespace
}  // namespace spillway::device
