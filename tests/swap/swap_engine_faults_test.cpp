// Schedules of faults, each from a seed, below the whole engine: what it says was done was done
// right, what could not be done is an error at the one who asked, and nothing waits for ever.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/swap/swap_engine.h"
#include "store/striped/factory.h"
#include "support/fault_store.h"
#include "support/sanitized.h"

namespace spillway::swap {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

constexpr std::size_t kBudgetPages = 8;

struct Tally {
  std::atomic<std::uint64_t> operators{0};
  std::atomic<std::uint64_t> lost_inputs{0};
  std::atomic<std::uint64_t> no_outputs{0};
  std::atomic<std::uint64_t> fetched_pages{0};
  std::atomic<std::uint64_t> retries{0};
};

/// A thread that allocates, carries out operators on what it has, and goes on after each error.
class FaultyTrainer {
 public:
  FaultyTrainer(SwapEngine& swap, std::uint64_t seed, Tally& tally)
      : swap_(swap), random_(seed), tally_(tally) {}

  void run() {
    for (int step = 0; step < 40; ++step) {
      if (tensors_.size() < 6 && random_() % 3 == 0) {
        carry_out({});
      } else if (!tensors_.empty()) {
        act(random_() % tensors_.size());
      }
    }
    while (!tensors_.empty()) release(0);
  }

 private:
  struct Tensor {
    SwapEngine::Allocation place;
    std::vector<std::uint64_t> words;  ///< At the start of each page.
  };

  static std::uint64_t& word(const Tensor& tensor, std::size_t page) {
    return *reinterpret_cast<std::uint64_t*>(tensor.place.address + page * kPageBytes);
  }

  void act(std::size_t index) {
    const RangePart part(tensors_[index].place.range,
                         static_cast<std::uint32_t>(random_() % tensors_[index].words.size()),
                         1 + random_() % 3);
    switch (random_() % 8) {
      case 0: release(index); break;
      case 1: swap_.fetch(part, random_() % 2 == 0 ? Copy::kKeep : Copy::kDrop); break;
      case 2: swap_.write_out(part, 1 + random_() % 3); break;
      case 3: swap_.set_next_use(part, random_() % 1000); break;
      default: carry_out({index, random_() % tensors_.size()}); break;
    }
  }

  /// An operator that reads its inputs, writes some of them, and at times has an output.
  void carry_out(const std::vector<std::size_t>& inputs) {
    PinSet pins;
    std::vector<RangeUse> uses;
    for (const std::size_t input : inputs) {
      uses.push_back(swap_.find(tensors_[input].place.address));
      uses.back().writes = random_() % 2 == 0;
    }
    try {
      swap_.pin(pins, uses);
    } catch (const IoError&) {
      ++tally_.lost_inputs;
      return;
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) compute(tensors_[inputs[i]], uses[i].writes);
    if (inputs.empty() || (tensors_.size() < 6 && random_() % 2 == 0)) allocate(pins);
    swap_.unpin(pins);
    ++tally_.operators;
  }

  void compute(Tensor& tensor, bool writes) {
    for (std::size_t page = 0; page < tensor.words.size(); ++page) {
      EXPECT_EQ(word(tensor, page), tensor.words[page]);
      if (writes) word(tensor, page) = tensor.words[page] = random_();
    }
  }

  void allocate(PinSet& pins) {
    const std::size_t pages = 1 + random_() % 2;
    Tensor tensor;
    try {
      tensor.place = swap_.allocate(kPageSize * pages, &pins);
    } catch (const IoError&) {
      ++tally_.no_outputs;
      return;
    }
    for (std::size_t page = 0; page < pages; ++page) {
      tensor.words.push_back(random_());
      word(tensor, page) = tensor.words.back();
    }
    tensors_.push_back(std::move(tensor));
  }

  void release(std::size_t index) {
    swap_.release(tensors_[index].place.range);
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  SwapEngine& swap_;
  std::mt19937_64 random_;
  Tally& tally_;
  std::vector<Tensor> tensors_;
};

std::vector<memory::MapperKind> viable_mappers() {
  std::vector<memory::MapperKind> kinds;
  for (const memory::MapperProbe& probe : memory::probe_mappers())
    if (probe.is_viable) kinds.push_back(probe.kind);
  return kinds;
}

void run_schedule(std::uint64_t seed, memory::MapperKind mapper, Tally& tally) {
  std::mt19937_64 random(seed);
  const SteadyClock clock;
  auto bell = std::make_shared<Doorbell>();
  std::vector<std::unique_ptr<SpillStore>> disks;
  for (std::size_t i = 0; i < 1 + seed % 2; ++i)
    disks.push_back(make_faulty_disk(random, kPageSize * (2 + random() % 16), bell, clock));
  SwapEngineOptions options;
  options.budget = kPageSize * kBudgetPages;
  options.arena_size = 1_GiB;
  SwapEngine swap(options, memory::make_frame_mapper(mapper),
                  make_striped_store(std::move(disks), bell), clock);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, own = random()] { FaultyTrainer(swap, own, tally).run(); });
  for (std::thread& thread : threads) thread.join();
  const SwapStatistics counts = swap.statistics();
  EXPECT_LE(counts.counted_peak, options.budget);
  EXPECT_EQ(counts.live, Bytes());
  tally.fetched_pages += counts.fetched / kPageSize;
  tally.retries += counts.store.retries;
}

TEST(SwapEngineFaults, AreErrorsAtTheOneWhoAskedAndNeverWrongBytes) {
  constexpr std::uint64_t kSchedules = tries(1000, 100);
  const auto mappers = viable_mappers();
  ASSERT_FALSE(mappers.empty());
  Tally tally;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_schedule(seed, mappers[seed % mappers.size()], tally);
    if (HasFailure()) return;
  }
  // The schedules must have met everything they are for.
  EXPECT_GT(tally.operators, kSchedules * 10);
  EXPECT_GT(tally.fetched_pages, kSchedules);
  EXPECT_GT(tally.retries, kSchedules);
  EXPECT_GT(tally.lost_inputs, kSchedules / 10);
  EXPECT_GT(tally.no_outputs, kSchedules / 10);
}

}  // namespace
}  // namespace spillway::swap
