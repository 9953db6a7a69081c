// Schedules of faults below the whole engine: what it says was done was done right, what could not
// be done is an error at the one who asked, and nothing waits for ever. A seed draws the faults and
// what the trainers do; how their threads interleave is up to the machine.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/memory/host_pages.h"
#include "spillway/swap/swap_engine.h"
#include "store/striped/factory.h"
#include "support/fault_store.h"
#include "support/residency_orders.h"
#include "support/sanitized.h"

namespace spillway::swap {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

constexpr std::size_t kBudgetPages = 8;

struct Tally {
  std::atomic<std::uint64_t> operators{0};
  std::atomic<std::uint64_t> no_inputs{0};
  std::atomic<std::uint64_t> no_outputs{0};
  std::atomic<std::uint64_t> fetched_pages{0};
  std::atomic<std::uint64_t> retries{0};
};

/// What no fault accounts for: inputs and outputs fit, and the kernel keeps nothing for long.
void tell_of(const BudgetError& error) { ADD_FAILURE() << error.what(); }

/// A thread that allocates, carries out operators on what it has, and goes on after each error.
class FaultyTrainer {
 public:
  FaultyTrainer(SwapEngine& swap, std::uint64_t seed, std::size_t pages_max, Tally& tally)
      : swap_(swap), random_(seed), pages_max_(pages_max), tally_(tally) {}

  void run() {
    for (int step = 0; step < 40; ++step) {
      if (tensors_.size() < 6 && random_() % 3 == 0) {
        carry_out({});
      } else if (!tensors_.empty()) {
        act(random_() % tensors_.size());
      }
    }
  }

  bool has_tensors() const { return !tensors_.empty(); }
  void release_all() {
    while (has_tensors()) release(0);
  }

  /// Looks at all that can be brought in, and gives it up. Returns how many that were.
  std::size_t release_what_can_be_seen() {
    std::size_t seen = 0;
    for (std::size_t index = tensors_.size(); index-- > 0;) {
      PinSet pins;
      const RangeUse use = swap_.find(tensors_[index].place.address);
      try {
        swap_.pin(pins, {&use, 1});
      } catch (const IoError&) {
        continue;  // Until others have made room.
      } catch (const BudgetError& error) {
        return tell_of(error), seen;
      }
      compute(tensors_[index], /*writes=*/false);
      swap_.unpin(pins);
      release(index);
      ++seen;
    }
    return seen;
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
    const RangePart part(tensors_[index].place.storage,
                         static_cast<std::uint32_t>(random_() % tensors_[index].words.size()),
                         1 + random_() % 3);
    switch (random_() % 9) {
      case 0: release(index); break;
      case 1:
        fetch(swap_, part, random_() % 2 == 0 ? OnFetch::kKeepStoreCopy : OnFetch::kDropStoreCopy);
        break;
      case 2: write_out(swap_, part, 1 + random_() % 3); break;
      case 3: set_next_use(swap_, part, random_() % 1000); break;
      case 4: swap_.guard(part.storage); break;
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
      ++tally_.no_inputs;
      return;
    } catch (const BudgetError& error) {
      return tell_of(error);
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
    const std::size_t pages = 1 + random_() % pages_max_;
    Tensor tensor;
    try {
      tensor.place = swap_.allocate(kPageSize * pages, &pins);
    } catch (const IoError&) {
      ++tally_.no_outputs;
      return;
    } catch (const BudgetError& error) {
      return tell_of(error);
    }
    for (std::size_t page = 0; page < pages; ++page) {
      tensor.words.push_back(random_());
      word(tensor, page) = tensor.words.back();
    }
    tensors_.push_back(std::move(tensor));
  }

  void release(std::size_t index) {
    swap_.release(tensors_[index].place.storage);
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  SwapEngine& swap_;
  std::mt19937_64 random_;
  std::size_t pages_max_;
  Tally& tally_;
  std::vector<Tensor> tensors_;
};

std::vector<memory::MapperKind> viable_mappers() {
  std::vector<memory::MapperKind> kinds;
  for (const memory::MapperProbe& probe : memory::probe_mappers())
    if (probe.is_viable) kinds.push_back(probe.kind);
  return kinds;
}

/// With faults of writes alone nothing may be lost: in the end everything can still be seen.
/// Tensors are of one page then, so that each that is in memory can go and make room for another.
void run_schedule(std::uint64_t seed, Faults kinds, memory::MapperKind mapper, Tally& tally) {
  std::mt19937_64 random(seed);
  const SteadyClock clock;
  auto notifier = std::make_shared<Notifier>();
  std::vector<std::unique_ptr<SpillStore>> disks;
  for (std::size_t i = 0; i < 1 + random() % 2; ++i)
    disks.push_back(
        make_faulty_disk(random, kinds, kPageSize * (2 + random() % 16), notifier, clock));
  SwapEngineOptions options;
  options.budget = kPageSize * kBudgetPages;
  options.arena_size = 1_GiB;
  SwapEngine swap(options, memory::make_host_pages(mapper),
                  make_striped_store(std::move(disks), notifier), clock);
  std::vector<FaultyTrainer> trainers;
  for (std::size_t i = 0; i < 2; ++i)
    trainers.emplace_back(swap, random(), kinds == Faults::kAll ? 2 : 1, tally);
  std::vector<std::thread> threads;
  for (FaultyTrainer& trainer : trainers) threads.emplace_back([&] { trainer.run(); });
  for (std::thread& thread : threads) thread.join();
  while (kinds == Faults::kOfWrites && (trainers[0].has_tensors() || trainers[1].has_tensors())) {
    std::size_t seen = 0;
    for (FaultyTrainer& trainer : trainers) seen += trainer.release_what_can_be_seen();
    ASSERT_GT(seen, 0u) << "bytes were lost";
  }
  for (FaultyTrainer& trainer : trainers) trainer.release_all();
  const SwapStatistics counts = swap.statistics();
  EXPECT_LE(counts.counted_peak, options.budget);
  EXPECT_EQ(counts.live, Bytes());
  tally.fetched_pages += counts.fetched / kPageSize;
  tally.retries += counts.store.retries;
}

class SwapEngineFaults : public testing::TestWithParam<Faults> {};

TEST_P(SwapEngineFaults, AreErrorsAtTheOneWhoAskedAndNeverWrongBytes) {
  constexpr std::uint64_t kSchedules = tries(300, 50);
  const auto mappers = viable_mappers();
  ASSERT_FALSE(mappers.empty());
  Tally tally;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_schedule(seed, GetParam(), mappers[seed % mappers.size()], tally);
    if (HasFailure()) return;
  }
  // The schedules must have met everything they are for.
  // How often depends on how the threads take turns.
  EXPECT_GT(tally.operators, kSchedules * 10);
  EXPECT_GT(tally.fetched_pages, 0u);
  EXPECT_GT(tally.retries, 0u);
  EXPECT_GT(tally.no_inputs, 0u);
  EXPECT_GT(tally.no_outputs, 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SwapEngineFaults, testing::Values(Faults::kAll, Faults::kOfWrites),
                         [](const auto& kinds) {
                           return kinds.param == Faults::kAll ? "All" : "OfWrites";
                         });

}  // namespace
}  // namespace spillway::swap
