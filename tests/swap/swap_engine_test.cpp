#include "spillway/swap/swap_engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "spillway/memory/frame_mapper.h"
#include "spillway/swap/spill_store_factory.h"

namespace spillway::swap {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

std::unique_ptr<SpillStore> ram_store(std::size_t pages) {
  SpillStoreOptions options;
  options.kind = StoreKind::kRam;
  options.ram_capacity = kPageSize * pages;
  return make_spill_store(options).store;
}

std::uint64_t& word(std::byte* memory, std::size_t page) {
  return *reinterpret_cast<std::uint64_t*>(memory + page * kPageBytes);
}

class SwapEngineTest : public testing::TestWithParam<memory::MapperKind> {
 protected:
  void SetUp() override {
    for (const memory::MapperProbe& probe : memory::probe_mappers()) {
      if (probe.kind == GetParam() && !probe.is_viable) GTEST_SKIP() << probe.reason;
    }
  }

  std::unique_ptr<SwapEngine> engine(std::size_t pages, std::size_t store_pages = 4096) {
    SwapEngineOptions options;
    options.budget = kPageSize * pages;
    options.arena_size = 8_GiB;
    return std::make_unique<SwapEngine>(options, memory::make_frame_mapper(GetParam()),
                                        ram_store(store_pages), clock_);
  }

  static RangeUse use(const SwapEngine& engine, const void* memory, bool writes) {
    RangeUse found = engine.find(memory);
    found.writes = writes;
    return found;
  }

  SteadyClock clock_;
};

TEST_P(SwapEngineTest, KeepsContentsOfRangesThatTogetherExceedTheBudget) {
  auto swap = engine(8);
  std::vector<std::byte*> ranges;
  for (std::size_t i = 0; i < 10; ++i) {
    ranges.push_back(swap->allocate(kPageSize * 3, nullptr).address);
    for (std::size_t page = 0; page < 3; ++page) word(ranges.back(), page) = 100 * i + page;
  }
  for (std::size_t i = 0; i < 10; ++i) {
    for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(ranges[i], page), 100 * i + page);
  }
  const SwapStatistics counts = swap->statistics();
  EXPECT_LE(counts.counted_peak, kPageSize * 8);
  EXPECT_EQ(counts.live_peak, kPageSize * 30);
  EXPECT_GT(counts.spilled, Bytes());
  EXPECT_GT(counts.faults, 0u);
  for (std::byte* memory : ranges) swap->release(swap->find(memory).range);
}

TEST_P(SwapEngineTest, BringsPinnedRangesInWithoutFaults) {
  auto swap = engine(4);
  std::byte* first = swap->allocate(kPageSize * 3, nullptr).address;
  for (std::size_t page = 0; page < 3; ++page) word(first, page) = page + 1;
  std::byte* second = swap->allocate(kPageSize * 3, nullptr).address;
  for (std::size_t page = 0; page < 3; ++page) word(second, page) = page + 10;
  const std::uint64_t faults = swap->statistics().faults;
  for (int round = 0; round < 3; ++round) {
    for (std::byte* memory : {first, second}) {
      PinSet pins;
      const RangeUse uses[] = {use(*swap, memory, true)};
      swap->pin(pins, uses);
      for (std::size_t page = 0; page < 3; ++page) word(memory, page) += 1;
      swap->unpin(pins);
    }
  }
  EXPECT_EQ(swap->statistics().faults, faults);
  EXPECT_EQ(word(first, 2), 3u + 3u);
  EXPECT_EQ(word(second, 2), 12u + 3u);
}

TEST_P(SwapEngineTest, LetsRangesThatWereOnlyReadLeaveWithoutAWrite) {
  auto swap = engine(4);
  std::byte* first = swap->allocate(kPageSize * 3, nullptr).address;
  std::byte* second = swap->allocate(kPageSize * 3, nullptr).address;
  const auto read = [&](std::byte* memory) {
    PinSet pins;
    const RangeUse uses[] = {use(*swap, memory, false)};
    swap->pin(pins, uses);
    swap->unpin(pins);
  };
  for (int round = 0; round < 2; ++round) read(first), read(second);
  const Bytes spilled = swap->statistics().spilled;
  for (int round = 0; round < 4; ++round) read(first), read(second);
  EXPECT_EQ(swap->statistics().spilled, spilled);
  EXPECT_GT(swap->statistics().left_clean, Bytes());
}

TEST_P(SwapEngineTest, RefusesWhatRunningOperatorsLeaveNoRoomFor) {
  auto swap = engine(4);
  std::byte* held = swap->allocate(kPageSize * 3, nullptr).address;
  PinSet pins;
  const RangeUse uses[] = {use(*swap, held, true)};
  swap->pin(pins, uses);
  EXPECT_THROW(swap->allocate(kPageSize * 2, &pins), NoRoomError);
  EXPECT_THROW(swap->allocate(kPageSize * 5, nullptr), NoRoomError);
  swap->unpin(pins);
  EXPECT_NE(swap->allocate(kPageSize * 2, nullptr).address, nullptr);
}

TEST_P(SwapEngineTest, PagesThroughAnOperatorThatDoesNotFitWhenTold) {
  auto swap = engine(4);
  swap->set_oversize(Oversize::kPageThrough);
  PinSet pins;
  std::vector<std::byte*> parts;
  for (std::uint64_t i = 0; i < 4; ++i) {
    parts.push_back(swap->allocate(kPageSize * 3, &pins).address);
    for (std::size_t page = 0; page < 3; ++page) word(parts.back(), page) = 7 * i + page;
  }
  for (std::uint64_t i = 0; i < 4; ++i) {
    for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(parts[i], page), 7 * i + page);
  }
  EXPECT_LE(swap->statistics().counted_peak, kPageSize * 4);
}

/// An unaligned access needs both pages at once. When each arrival pushed the other page out again,
/// a copy out of a range larger than the budget never ended.
TEST_P(SwapEngineTest, ServesAccessesThatSpanTwoPagesOfARangeLargerThanTheBudget) {
  auto swap = engine(4);
  std::vector<std::byte*> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(swap->allocate(kPageSize * 3, nullptr).address);
  for (std::byte* part : parts) {
    const RangeId range = swap->find(part).range;
    swap->set_next_use(range, kNeverUsed - 10);  // The first to go, by what was predicted.
    std::byte* border = part + kPageBytes - 4;
    for (int round = 0; round < 3; ++round) {
      std::uint64_t value = 0;
      std::memcpy(&value, border, sizeof value);
      value += 3;
      std::memcpy(border, &value, sizeof value);
    }
  }
  EXPECT_LE(swap->statistics().counted_peak, kPageSize * 4);
}

TEST_P(SwapEngineTest, ReportsAFullStoreAndLosesNothing) {
  auto swap = engine(4, /*store_pages=*/2);
  std::byte* first = swap->allocate(kPageSize * 3, nullptr).address;
  for (std::size_t page = 0; page < 3; ++page) word(first, page) = page + 1;
  EXPECT_THROW(swap->allocate(kPageSize * 4, nullptr), IoError);
  for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(first, page), page + 1);
}

TEST_P(SwapEngineTest, TakesSmallBlocksOutOfTheBudget) {
  auto swap = engine(4);
  std::byte* large = swap->allocate(kPageSize * 4, nullptr).address;
  word(large, 3) = 42;
  swap->account_small(kPageSize, nullptr);
  EXPECT_LE(swap->statistics().counted, kPageSize * 4);
  EXPECT_GT(swap->statistics().spilled, Bytes());
  EXPECT_EQ(word(large, 3), 42u);
  swap->release_small(kPageSize);
}

/// What one thread of the random test holds: its memory, and the words that must be in it.
using Model = std::map<std::byte*, std::vector<std::uint64_t>>;

class RandomUser {
 public:
  RandomUser(SwapEngine& swap, unsigned seed) : swap_(swap), random_(seed) {}

  void run(int actions) {
    for (int i = 0; i < actions; ++i) {
      const unsigned action = random_() % 10;
      if (model_.empty() || (model_.size() < 8 && action < 3)) {
        allocate();
      } else {
        act(action, std::next(model_.begin(), static_cast<int>(random_() % model_.size())));
      }
    }
    while (!model_.empty()) release(model_.begin());
  }

 private:
  void allocate() {
    const std::size_t pages = 1 + random_() % 4;
    std::byte* memory = swap_.allocate(kPageSize * pages, nullptr).address;
    auto& expected = model_[memory];
    for (std::size_t page = 0; page < pages; ++page) {
      expected.push_back(random_());
      word(memory, page) = expected.back();
    }
  }

  void act(unsigned action, Model::iterator entry) {
    auto& [memory, expected] = *entry;
    const std::size_t page = random_() % expected.size();
    if (action < 5) {
      PinSet pins;
      RangeUse use = swap_.find(memory);
      use.writes = random_() % 2 == 0;
      swap_.pin(pins, {&use, 1});
      EXPECT_EQ(word(memory, page), expected[page]);
      if (use.writes) word(memory, page) = expected[page] = random_();
      swap_.unpin(pins);
    } else if (action < 7) {
      EXPECT_EQ(word(memory, page), expected[page]);
    } else if (action < 8) {
      word(memory, page) = expected[page] = random_();
    } else if (action < 9) {
      const RangeId range = swap_.find(memory).range;
      random_() % 2 == 0 ? swap_.fetch(range) : swap_.write_out(range, 1 + random_() % 4);
    } else {
      release(entry);
    }
  }

  void release(Model::iterator entry) {
    auto& [memory, expected] = *entry;
    for (std::size_t page = 0; page < expected.size(); ++page)
      EXPECT_EQ(word(memory, page), expected[page]);
    swap_.release(swap_.find(memory).range);
    model_.erase(entry);
  }

  SwapEngine& swap_;
  std::mt19937 random_;
  Model model_;
};

TEST_P(SwapEngineTest, EqualsAPlainMapUnderRandomUseFromManyThreads) {
  auto swap = engine(24);
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&swap, seed] { RandomUser(*swap, seed).run(1500); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(swap->statistics().counted_peak, kPageSize * 24);
  EXPECT_EQ(swap->statistics().live, Bytes());
}

// Named, not probed: the list of cases is made at build time, where no mapper is to run.
INSTANTIATE_TEST_SUITE_P(Mappers, SwapEngineTest,
                         testing::Values(memory::MapperKind::kUserfaultfd,
                                         memory::MapperKind::kUserfaultfdUser,
                                         memory::MapperKind::kSignal),
                         [](const auto& kind) {
                           std::string name(memory::name_of(kind.param));
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name;
                         });

}  // namespace
}  // namespace spillway::swap
