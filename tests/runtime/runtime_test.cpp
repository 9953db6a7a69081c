// The runtime with a real engine and threads, without LibTorch: a small trainer whose operators are
// announced as the adapter would, against the same arithmetic on plain memory.
#include "spillway/runtime/rehearsal.h"
#include "support/named_op.h"
#include "support/running_op.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <span>
#include <thread>

#include "spillway/memory/host_pages.h"
#include "spillway/runtime/recording/transfer_meter.h"
#include "store/ram/factory.h"
#include "store/retrying/factory.h"
#include "support/best_mapper.h"
#include "support/error_text.h"
#include "support/fault_store.h"
#include "support/golden_part.h"
#include "support/manual_clock.h"
#include "support/sanitized.h"

namespace spillway::runtime {
namespace {

using memory::kPageBytes;
using memory::kPageSize;
using swap::FaultOptions;

constexpr std::size_t kWeightPages = 2;
constexpr std::size_t kActivationPages = 3;

std::uint64_t& word(void* memory, std::size_t page) {
  return *reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(memory) + page * kPageBytes);
}

class RuntimeTest : public ::testing::Test {
 protected:
  std::unique_ptr<Runtime> make(std::size_t budget_pages, std::size_t store_pages = 1024,
                                const FaultOptions& faults = {}) {
    auto notifier = std::make_shared<swap::Notifier>();
    auto store = std::make_unique<swap::FaultStore>(
        swap::make_ram_store(kPageSize * store_pages, 4, notifier), notifier, faults);
    swap::SwapEngineOptions engine;
    engine.budget = kPageSize * budget_pages;
    engine.arena_size = arena_;
    engine.observers = {&transfers_};
    RuntimeOptions options;
    options.budget = engine.budget;
    options.moved = [this] { return transfers_.moved(); };
    options.moves_of_oversize = moves_of_oversize_;
    options.oversize_limit = oversize_limit_;
    options.endurance = endurance_;
    options.recording = recording_;
    return std::make_unique<Runtime>(
        options,
        std::make_unique<swap::SwapEngine>(engine, memory::make_host_pages(best_mapper()),
                                           std::move(store), clock_),
        *step_clock_);
  }

  SteadyClock clock_;
  const Clock* step_clock_ = &clock_;
  TransferMeter transfers_{{}};
  Bytes moves_of_oversize_ = RuntimeOptions().moves_of_oversize;
  std::optional<Bytes> oversize_limit_;
  Bytes arena_ = 8_GiB;
  Bytes endurance_;
  ProfileRecording* recording_ = nullptr;
};

struct Use {
  void* memory;
  bool writes = false;
};

/// Runs `body` as an operator that uses that memory.
template <typename Body>
void run_op(Runtime& runtime, std::uint64_t signature, std::initializer_list<Use> uses,
            const Body& body) {
  std::vector<RangeUse> found;
  for (const Use& use : uses) {
    found.push_back(runtime.find(use.memory));
    found.back().writes = use.writes;
  }
  const NamedOp text("op " + std::to_string(signature));
  const RunningOp op(runtime, signature, found, text);
  body();
}

/// A chain of layers, forward and backward; a layer's gradient goes into its weight at once.
class Chain {
 public:
  Chain(Runtime& runtime, std::size_t layers, std::uint64_t seed) : runtime_(runtime) {
    for (std::size_t i = 0; i < layers; ++i) {
      weights_.push_back(runtime_.allocate(kWeightPages * kPageBytes));
      for (std::size_t page = 0; page < kWeightPages; ++page)
        word(weights_[i], page) = seed + i * 10 + page;
    }
    activations_.resize(layers);
  }
  ~Chain() {
    for (void* weight : weights_) runtime_.deallocate(weight);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  /// `free` is given what dies; `input` is added to the first layer.
  template <typename Free>
  void step(std::uint64_t input, const Free& free) {
    for (std::size_t i = 0; i < weights_.size(); ++i) forward(i, input);
    for (std::size_t i = weights_.size(); i-- > 0;) {
      void* const activation = activations_[i];
      void* const weight = weights_[i];
      run_op(runtime_, 1000 + i, {{activation}, {weight, true}}, [&] {
        for (std::size_t page = 0; page < kActivationPages; ++page)
          word(weight, page % kWeightPages) += word(activation, page) % 1009;
      });
      free(activation);
    }
  }

  static std::vector<std::uint64_t> expected(std::size_t layers, std::uint64_t seed,
                                             std::span<const std::uint64_t> inputs);

  std::vector<std::uint64_t> words() const {
    std::vector<std::uint64_t> all;
    for (void* weight : weights_)
      for (std::size_t page = 0; page < kWeightPages; ++page) all.push_back(word(weight, page));
    return all;
  }

 private:
  void forward(std::size_t i, std::uint64_t input) {
    const auto fill = [&](void* before) {
      activations_[i] = runtime_.allocate(kActivationPages * kPageBytes);
      for (std::size_t page = 0; page < kActivationPages; ++page)
        word(activations_[i], page) = (before == nullptr ? input : word(before, page)) * 3 +
                                      word(weights_[i], page % kWeightPages);
    };
    if (i == 0) {
      run_op(runtime_, i, {{weights_[i]}}, [&] { fill(nullptr); });
    } else {
      run_op(runtime_, i, {{activations_[i - 1]}, {weights_[i]}},
             [&] { fill(activations_[i - 1]); });
    }
  }

  Runtime& runtime_;
  std::vector<void*> weights_;
  std::vector<void*> activations_;
};

std::vector<std::uint64_t> Chain::expected(std::size_t layers, std::uint64_t seed,
                                           std::span<const std::uint64_t> inputs) {
  std::vector<std::array<std::uint64_t, kWeightPages>> weights(layers);
  for (std::size_t i = 0; i < layers; ++i)
    for (std::size_t page = 0; page < kWeightPages; ++page) weights[i][page] = seed + i * 10 + page;
  std::vector<std::array<std::uint64_t, kActivationPages>> activations(layers);
  for (const std::uint64_t input : inputs) {
    for (std::size_t i = 0; i < layers; ++i)
      for (std::size_t page = 0; page < kActivationPages; ++page)
        activations[i][page] =
            (i == 0 ? input : activations[i - 1][page]) * 3 + weights[i][page % kWeightPages];
    for (std::size_t i = layers; i-- > 0;)
      for (std::size_t page = 0; page < kActivationPages; ++page)
        weights[i][page % kWeightPages] += activations[i][page] % 1009;
  }
  std::vector<std::uint64_t> all;
  for (const auto& weight : weights) all.insert(all.end(), weight.begin(), weight.end());
  return all;
}

constexpr std::size_t kLayers = 8;
constexpr std::size_t kChainPages = kLayers * (kWeightPages + kActivationPages);
constexpr std::array<std::uint64_t, 8> kInputs = {5, 1, 9, 7, 3, 2, 8, 4};

TEST_F(RuntimeTest, TrainsTheSameUnderAThirdOfTheMemoryAndFollowsItsPlan) {
  const auto runtime = make(kChainPages / 3);
  {
    Chain chain(*runtime, kLayers, 1);
    for (const std::uint64_t input : kInputs) {
      chain.step(input, [&](void* memory) { runtime->deallocate(memory); });
      runtime->step_updated();
      runtime->step_boundary();
    }
    EXPECT_EQ(chain.words(), Chain::expected(kLayers, 1, kInputs));
    const RuntimeReport report = runtime->report();
    EXPECT_EQ(report.steps, kInputs.size());
    EXPECT_EQ(report.ops, kInputs.size() * 2 * kLayers);
    EXPECT_LE(report.memory.counted_peak, kPageSize * (kChainPages / 3));
    EXPECT_GT(report.memory.spilled, Bytes());
    EXPECT_TRUE(report.learned.follows_plan);
    EXPECT_GE(report.learned.plans, 1u);
    EXPECT_EQ(report.smallest_budget, kPageSize * (2 * kActivationPages + kWeightPages + 1));
    EXPECT_EQ(report.largest_op, "op 1");
    const auto needs = runtime->program_needs();
    ASSERT_TRUE(needs.has_value());
    EXPECT_EQ(needs->budget, report.smallest_budget);
    EXPECT_EQ(needs->op.name, "op 1");
    EXPECT_TRUE(needs->is_early);
  }
  EXPECT_EQ(runtime->report().memory.live, Bytes());
}

/// Steps that read a window of a volume, another one each time. The profile of a step.
profile::StepProfile profile_of_windows(Runtime& runtime, const ProfileRecording& recording) {
  constexpr std::size_t kVolumePages = 9;
  constexpr std::size_t kWindowPages = 2;
  auto* const volume = static_cast<std::byte*>(runtime.allocate(kVolumePages * kPageBytes));
  for (std::size_t page = 0; page < kVolumePages; ++page) word(volume, page) = page;
  const NamedOp crop("crop");
  for (std::size_t step = 0; step < 8; ++step) {
    void* window = nullptr;
    const std::array uses{
        runtime.find(volume + step * kPageBytes, kPageSize * kWindowPages - Bytes(step))};
    runtime.begin_op(1, uses, crop);
    window = runtime.allocate(kActivationPages * kPageBytes);
    runtime.end_op();
    run_op(runtime, 2, {{window, true}}, [&] { word(window, 1) = step; });
    runtime.deallocate(window);
    runtime.step_updated();
    runtime.step_boundary();
  }
  run_op(runtime, 3, {{volume}}, [] {});  // Ends the last step.
  runtime.deallocate(volume);
  return recording.profile({}, Bytes(), {});
}

// Under a budget the volume was recorded in pieces, and windows over other pieces were other steps.
TEST_F(RuntimeTest, RecordsTheSameUnderABudget) {
  std::vector<profile::StepProfile> profiles;
  for (const std::size_t budget_pages : {1000, 12, 10}) {
    ProfileRecording recording({});
    recording_ = &recording;
    profiles.push_back(profile_of_windows(*make(budget_pages), recording));
    EXPECT_EQ(recording.kinds_text(), "") << budget_pages << " pages";
  }
  const profile::StepTape& whole = profiles.front().tape;
  ASSERT_EQ(whole.ops.size(), 2U);
  for (const profile::StepProfile& profile : profiles) {
    EXPECT_EQ(profile.bytes_of_value, profiles.front().bytes_of_value);
    ASSERT_EQ(profile.tape.ops.size(), whole.ops.size());
    for (std::size_t op = 0; op < whole.ops.size(); ++op)
      EXPECT_EQ(profile.tape.ops[op].signature, whole.ops[op].signature);
    ASSERT_EQ(profile.tape.values.size(), whole.values.size());
    for (std::size_t i = 0; i < whole.values.size(); ++i) {
      EXPECT_EQ(profile.tape.values[i].pages, whole.values[i].pages);
      EXPECT_EQ(profile.tape.values[i].birth, whole.values[i].birth);
      EXPECT_EQ(profile.tape.values[i].death, whole.values[i].death);
    }
  }
}

/// A plan is for one thread; what others do neither disturbs it nor is lost.
TEST_F(RuntimeTest, LearnsOneThreadWhileOthersTrainToo) {
  const auto runtime = make(60, 4096);
  std::vector<std::thread> threads;
  std::atomic<bool> is_right{true};
  {
    Chain chain(*runtime, kLayers, 1);
    // The first operator decides who is learned from.
    run_op(*runtime, 7, {}, [] {});
    chain.step(kInputs[0], [&](void* memory) { runtime->deallocate(memory); });
    runtime->step_boundary();
    for (std::uint64_t seed = 2; seed <= 3; ++seed) {
      threads.emplace_back([&, seed] {
        Chain other(*runtime, kLayers, seed);
        for (const std::uint64_t input : kInputs)
          other.step(input, [&](void* memory) { runtime->deallocate(memory); });
        if (other.words() != Chain::expected(kLayers, seed, kInputs)) is_right = false;
      });
    }
    for (std::size_t i = 1; i < kInputs.size(); ++i) {
      chain.step(kInputs[i], [&](void* memory) { runtime->deallocate(memory); });
      runtime->step_boundary();
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(chain.words(), Chain::expected(kLayers, 1, kInputs));
  }
  EXPECT_TRUE(is_right);
  const RuntimeReport report = runtime->report();
  EXPECT_TRUE(report.learned.follows_plan);
  EXPECT_EQ(report.learned.shapes, 1u);
  EXPECT_EQ(report.memory.live, Bytes());
}

/// Graphs die on other threads; ranges come back at once under the same number.
TEST_F(RuntimeTest, LearnsTheSameWhenAnotherThreadFreesWhatTheTrainerMade) {
  const auto runtime = make(kChainPages / 2);
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<void*> dying;
  bool is_over = false;
  std::thread undertaker([&] {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return is_over || !dying.empty(); });
      if (dying.empty()) return;
      void* const memory = dying.front();
      lock.unlock();
      runtime->deallocate(memory);
      lock.lock();
      dying.pop_front();
      changed.notify_all();
    }
  });
  {
    Chain chain(*runtime, kLayers, 1);
    for (const std::uint64_t input : kInputs) {
      chain.step(input, [&](void* memory) {
        const std::lock_guard lock(mutex);
        dying.push_back(memory);
        changed.notify_all();
      });
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return dying.empty(); });
      lock.unlock();
      runtime->step_boundary();
    }
    EXPECT_EQ(chain.words(), Chain::expected(kLayers, 1, kInputs));
  }
  {
    const std::lock_guard lock(mutex);
    is_over = true;
    changed.notify_all();
  }
  undertaker.join();
  EXPECT_EQ(runtime->report().memory.live, Bytes());
  EXPECT_LE(runtime->report().memory.counted_peak, kPageSize * (kChainPages / 2));
}

/// So many that nobody waits for an operator of the trainer to tell them.
TEST_F(RuntimeTest, FreesOfOtherThreadsDoNotPileUp) {
  const auto runtime = make(8);
  run_op(*runtime, 1, {}, [&] { runtime->deallocate(runtime->allocate(kPageBytes)); });
  std::thread other([&] {
    for (int i = 0; i < 3000; ++i) runtime->deallocate(runtime->allocate(kPageBytes));
  });
  other.join();
  EXPECT_EQ(runtime->report().memory.live, Bytes());
}

/// A step whose second operator needs more than six pages. Returns what it has made.
void* run_oversize_step(Runtime& runtime, void* input) {
  // Until something had to leave, nothing is held.
  runtime.deallocate(runtime.allocate(4 * kPageBytes));
  run_op(runtime, 1, {{input}}, [&] { runtime.deallocate(runtime.allocate(3 * kPageBytes)); });
  void* larger = nullptr;
  run_op(runtime, 2, {{input}}, [&] {
    larger = runtime.allocate(5 * kPageBytes);
    for (std::size_t page = 0; page < 4; ++page) word(larger, page) = word(input, page);
  });
  return larger;
}

/// It was ended two steps later, at a step that fitted.
TEST_F(RuntimeTest, GoesOnForAsLongAsItLikesBehindAnOperatorThatWasLargerThanTheBudget) {
  ManualClock clock;
  step_clock_ = &clock;
  endurance_ = 600_GiB;
  const auto runtime = make(6);
  void* const input = runtime->allocate(4 * kPageBytes);
  for (std::size_t page = 0; page < 4; ++page) word(input, page) = page + 1;
  ::testing::internal::CaptureStderr();
  for (int step = 0; step < 3; ++step) {
    void* const larger = run_oversize_step(*runtime, input);
    for (std::size_t page = 0; page < 4; ++page) EXPECT_EQ(word(larger, page), page + 1);
    runtime->deallocate(larger);
    runtime->step_updated();
    clock.advance(std::chrono::seconds(2));
    runtime->step_boundary();
  }
  for (std::uint64_t step = 0; step < 40; ++step) {
    run_op(*runtime, 3, {{input, true}}, [&] { word(input, 0) = step; });
    runtime->step_updated();
    runtime->step_boundary();
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  GoldenPart golden;
  golden.mask(std::regex("[0-9.]+ MiB (in 2.00 s|a second|moved meanwhile)"), "SIZE $1");
  golden.mask(std::regex("last [0-9.]+ (days|years)"), "last DAYS");
  golden.add(told);
  EXPECT_EQ(word(input, 0), 39u);
  EXPECT_LE(runtime->report().memory.counted_peak, kPageSize * 6);
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kNone);
  runtime->finish(Runtime::Ending::kByItself);
  golden.add("at the end", runtime->report().refusal.text);
  runtime->deallocate(input);
}

/// There may be thousands, each within what one may move.
TEST_F(RuntimeTest, RefusesTheNextOversizeOperatorWhenTheyHaveMovedWhatTheyMayInARun) {
  oversize_limit_ = 40_MiB;
  const auto runtime = make(6);
  void* const input = runtime->allocate(4 * kPageBytes);
  for (std::size_t page = 0; page < 4; ++page) word(input, page) = page + 1;
  std::string told;
  int steps = 0;
  ::testing::internal::CaptureStderr();
  try {
    for (; steps < 100; ++steps) runtime->deallocate(run_oversize_step(*runtime, input));
  } catch (const BudgetError& error) {
    told = error.what();
  }
  GoldenPart golden;
  golden.mask(std::regex("op [12] does not fit into (.*) it needs .* at once .*(Such operators)"),
              "op N does not fit into $1 it needs SIZES at once. $2");
  golden.mask(std::regex("moved [0-9.]+ MiB"), "moved SIZE");
  golden.add(::testing::internal::GetCapturedStderr());
  golden.add("then", told);
  EXPECT_GT(steps, 0);
  EXPECT_GE(runtime->report().oversize.moved, 40_MiB);
  EXPECT_LT(runtime->report().oversize.moved, 80_MiB);
  // What fits goes on.
  run_op(*runtime, 3, {{input, true}}, [&] { EXPECT_EQ(word(input, 3), 4u); });
  runtime->deallocate(input);
}

TEST_F(RuntimeTest, FitsIntoTheSmallestBudgetThatItNames) {
  std::size_t pages = 8;
  for (const bool is_named : {false, true}) {
    const auto runtime = make(pages);
    std::vector<void*> small;
    for (int i = 0; i < 6; ++i) small.push_back(runtime->allocate(kPageBytes / 4));
    void* const other = runtime->allocate(3 * kPageBytes);
    void* const input = runtime->allocate(4 * kPageBytes);
    ::testing::internal::CaptureStderr();
    runtime->deallocate(run_oversize_step(*runtime, input));
    runtime->finish(Runtime::Ending::kByItself);
    const std::string told = ::testing::internal::GetCapturedStderr();
    const RuntimeReport report = runtime->report();
    EXPECT_GT(report.memory.spilled, Bytes());
    if (is_named) {
      EXPECT_EQ(told, "") << "with " << pages << " pages, as named";
      EXPECT_EQ(report.memory.faults, 0u);
    }
    pages = report.smallest_budget / kPageSize;
    for (void* block : {other, input}) runtime->deallocate(block);
    for (void* block : small) runtime->deallocate(block);
  }
}

/// Small tensors were counted twice, and an operator was blamed that needs next to nothing.
TEST_F(RuntimeTest, NamesTheSmallTensorsThatHoldTheMemory) {
  const auto runtime = make(12);
  std::vector<void*> small;
  std::string told;
  try {
    while (true) {
      run_op(*runtime, 5, {}, [&] { small.push_back(runtime->allocate(kPageBytes / 1024)); });
      ASSERT_LT(small.size(), 20'000u);
    }
  } catch (const BudgetError& error) {
    told = error.what();
  }
  GoldenPart().add(told);
  for (void* block : small) runtime->deallocate(block);
}

/// Nothing but its allocations can be refused; what they had moved until then is named.
TEST_F(RuntimeTest, RefusesTheNextAllocationOfAnOperatorThatMovesItsTensorsOverAndOver) {
  moves_of_oversize_ = Bytes();
  const auto runtime = make(8);
  std::vector<void*> made;
  std::string told;
  try {
    run_op(*runtime, 1, {}, [&] {
      for (int i = 0; i < 3; ++i) made.push_back(runtime->allocate(3 * kPageBytes));
      const auto moved = [&] {
        const swap::SwapStatistics memory = runtime->report().memory;
        return memory.spilled + memory.fetched;
      };
      const Bytes enough = moved() + kPageSize * 9 * 9;  // Of 16 times its need.
      while (moved() < enough)
        for (void* part : made)
          for (std::size_t page = 0; page < 3; ++page) ++word(part, page);
      made.push_back(runtime->allocate(kPageBytes));
    });
  } catch (const BudgetError& error) {
    told = error.what();
  }
  EXPECT_EQ(made.size(), 3u);
  GoldenPart golden;
  golden.mask(std::regex("moved [0-9.]+ [MG]iB"), "moved SIZE");
  golden.add(told);
  for (void* memory : made) runtime->deallocate(memory);
  run_op(*runtime, 2, {}, [&] { runtime->deallocate(runtime->allocate(8 * kPageBytes)); });
}

TEST_F(RuntimeTest, RefusesAtOnceWhatWouldRunForHours) {
  const auto runtime = make(6);
  GoldenPart().add(error_text<BudgetError>(
      [&] { run_op(*runtime, 1, {}, [&] { runtime->allocate(30 * kPageBytes); }); }));
  // The trainer may catch it and go on.
  void* const memory = runtime->allocate(6 * kPageBytes);
  word(memory, 5) = 1;
  runtime->deallocate(memory);
}

/// A disk that dies in mid-run: whoever needs room is told, and no byte is lost.
TEST_F(RuntimeTest, KeepsEverythingWhenTheDiskDies) {
  FaultOptions faults;
  faults.transfers_until_death = 6;
  const auto runtime = make(8, 1024, faults);
  std::vector<void*> made;
  std::string told;
  try {
    for (std::uint64_t i = 0; i < 20; ++i) {
      run_op(*runtime, i, {}, [&] {
        made.push_back(runtime->allocate(2 * kPageBytes));
        for (std::size_t page = 0; page < 2; ++page) word(made.back(), page) = 10 * i + page;
      });
    }
  } catch (const IoError& error) {
    told = error.what();
  }
  EXPECT_NE(told, "");
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kStore);
  EXPECT_EQ(runtime->report().refusal.text,
            told + ", needed for op " + std::to_string(made.size()));
  EXPECT_GE(made.size(), 4u);
  EXPECT_LT(made.size(), 12u);
  // What is in memory, and what is on the disk: that can still be read, page by page, as long as
  // clean pages give way.
  const auto touch = [&](std::size_t i) {
    for (std::size_t page = 0; page < 2; ++page) EXPECT_EQ(word(made[i], page), 10 * i + page);
  };
  for (std::size_t i = made.size(); i-- > made.size() - 3;) touch(i);
  runtime->deallocate(made.back());
  made.pop_back();
  touch(0);
  for (void* memory : made) runtime->deallocate(memory);
  EXPECT_EQ(runtime->report().memory.live, Bytes());
}

TEST_F(RuntimeTest, IsNoLongerRefusedOnceAStepHasEnded) {
  const auto runtime = make(6);
  EXPECT_THROW(run_op(*runtime, 1, {}, [&] { runtime->allocate(30 * kPageBytes); }), BudgetError);
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kBudget);
  GoldenPart().add(runtime->report().refusal.text);
  runtime->begin_step();
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kNone);
}

/// Whether what was needed is of a whole step, in words and in the report.
TEST_F(RuntimeTest, TellsWhetherTheFirstStepHasEnded) {
  GoldenPart golden;
  const auto runtime = make(6);
  const auto refuse = [&] {
    EXPECT_THROW(run_op(*runtime, 1, {}, [&] { runtime->allocate(30 * kPageBytes); }), BudgetError);
    golden.add(runtime->report().refusal.text);
  };
  EXPECT_FALSE(runtime->report().has_whole_step);
  runtime->step_updated();
  EXPECT_FALSE(runtime->report().has_whole_step) << "the update has only begun";
  refuse();
  runtime->finish(Runtime::Ending::kByItself);
  EXPECT_FALSE(runtime->report().has_whole_step) << "it was refused in the update";
  runtime->step_boundary();
  EXPECT_TRUE(runtime->report().has_whole_step);
  refuse();
  EXPECT_TRUE(runtime->report().has_whole_step);
}

/// The last step, which no boundary follows, counts where the program ended by itself after an
/// update had begun; told steps used to count when they began.
TEST_F(RuntimeTest, TakesAStepForWholeAtAnOrderlyEndAfterAnUpdate) {
  using Ending = Runtime::Ending;
  const auto is_whole = [&](bool tells, bool updates, Ending ending) {
    const auto runtime = make(6);
    if (tells) runtime->begin_step();
    EXPECT_FALSE(runtime->report().has_whole_step);
    if (updates) runtime->step_updated();
    EXPECT_FALSE(runtime->report().has_whole_step);
    runtime->finish(ending);
    return runtime->report().has_whole_step;
  };
  for (const bool tells : {false, true}) {
    EXPECT_TRUE(is_whole(tells, true, Ending::kByItself));
    EXPECT_FALSE(is_whole(tells, true, Ending::kBySignal)) << "it died in the update";
    EXPECT_FALSE(is_whole(tells, false, Ending::kByItself)) << "it was in its first forward";
  }
  const auto runtime = make(6);
  runtime->begin_step();
  runtime->begin_step();
  EXPECT_TRUE(runtime->report().has_whole_step);
}

/// Addresses are what is short, and a larger budget leaves fewer of them.
TEST_F(RuntimeTest, TellsWhenAllAddressesAreTaken) {
  arena_ = kPageSize * 8;
  const auto runtime = make(4);
  std::vector<void*> made;
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(for (int i = 0; i < 9; ++i) made.push_back(runtime->allocate(kPageBytes)),
               UnsupportedError);
  GoldenPart().add(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(made.size(), 8u);
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kAddresses);
  for (void* memory : made) runtime->deallocate(memory);
}

/// Its first attempt found no room, and the disk was full in the second.
TEST_F(RuntimeTest, TellsOfTheStoreWhereAnOperatorThatDoesNotFitFindsItFull) {
  const auto runtime = make(4, /*store_pages=*/2);
  void* const input = runtime->allocate(4 * kPageBytes);
  runtime->deallocate(runtime->allocate(2 * kPageBytes));
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(run_op(*runtime, 1, {{input}}, [&] { runtime->allocate(4 * kPageBytes); }), IoError);
  GoldenPart().add(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kStore);
  runtime->deallocate(input);
}

/// It was told as if the disk had been full, and all tensors were still there.
TEST_F(RuntimeTest, TellsWhatCannotBeReadBackAsThat) {
  FaultOptions faults;
  faults.failing = 1.0;
  faults.spares_writes = true;
  const auto runtime = make(4, 1024, faults);
  std::vector<void*> made;
  for (int i = 0; i < 3; ++i) made.push_back(runtime->allocate(2 * kPageBytes));
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(run_op(*runtime, 7, {{made[0]}}, [] {}), swap::UnreadableError);
  EXPECT_THROW(run_op(*runtime, 8, {{made[0]}}, [] {}), swap::UnreadableError);
  GoldenPart golden;
  golden.add(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kUnreadable);
  golden.add("at the end", runtime->report().refusal.text);
  for (void* memory : made) runtime->deallocate(memory);
}

TEST_F(RuntimeTest, GoesOnWhenTheDiskHasRoomAgain) {
  const auto runtime = make(4, /*store_pages=*/4);
  std::vector<void*> made;
  for (std::uint64_t i = 0; i < 4; ++i) {
    made.push_back(runtime->allocate(2 * kPageBytes));
    word(made.back(), 1) = i + 1;
  }
  EXPECT_THROW(runtime->allocate(2 * kPageBytes), IoError);
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kStore);
  EXPECT_EQ(word(made[3], 1), 4u);
  runtime->deallocate(made[0]);
  runtime->deallocate(made[3]);
  run_op(*runtime, 1, {{made[1]}}, [] {});
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kStore) << "that was not refused";
  made[0] = runtime->allocate(2 * kPageBytes);
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kNone);
  word(made[0], 1) = 1;
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(word(made[i], 1), i + 1);
  for (std::size_t i = 0; i < 3; ++i) runtime->deallocate(made[i]);
}

TEST_F(RuntimeTest, CountsSmallBlocks) {
  const auto runtime = make(4);
  void* const block = runtime->allocate(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
  EXPECT_FALSE(runtime->find(block).storage.is_some());
  EXPECT_GE(runtime->report().memory.small_peak, Bytes(1000));
  EXPECT_GT(runtime->report().memory.counted, Bytes());
  runtime->deallocate(block);
  runtime->deallocate(nullptr);
  // All but one page, kept for blocks to come, is there for storages again.
  run_op(*runtime, 1, {}, [&] { runtime->deallocate(runtime->allocate(3 * kPageBytes)); });
}

// A small block counted as an operator that does not fit, which ended a run that fitted.
TEST_F(RuntimeTest, RefusesNobodyForTheSecondRunOfARehearsal) {
  const auto runtime = make(4);
  ::testing::internal::CaptureStderr();
  run_op(*runtime, 1, {}, [&] {
    void* const all = runtime->allocate(4 * kPageBytes);
    for (const std::size_t size : {std::size_t{1000}, kPageBytes}) {
      const Rehearsal rehearsal(*runtime);
      EXPECT_FALSE(rehearsal.ran_out_of_room());
      EXPECT_THROW(runtime->allocate(size), swap::NoRoomError);
      EXPECT_TRUE(rehearsal.ran_out_of_room());
    }
    runtime->deallocate(all);
    const Rehearsal rehearsal(*runtime);
    runtime->deallocate(runtime->allocate(1000));
    EXPECT_FALSE(rehearsal.ran_out_of_room());
  });
  run_op(*runtime, 2, {}, [&] { runtime->deallocate(runtime->allocate(3 * kPageBytes)); });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kNone);
}

TEST_F(RuntimeTest, CountsToldStepsAloneOnceTheTrainerTells) {
  const auto runtime = make(4);
  runtime->step_updated();
  runtime->step_boundary();
  EXPECT_EQ(runtime->report().steps, 1u);
  runtime->step_updated();
  runtime->begin_step();  // The recognised step ends here, and one that is told begins.
  runtime->step_boundary();
  runtime->begin_step();
  EXPECT_EQ(runtime->report().steps, 4u);
}

/// All of a run's used to be kept.
TEST_F(RuntimeTest, TellsTheMedianOfItsLatestSteps) {
  ManualClock clock;
  step_clock_ = &clock;
  const auto runtime = make(4);
  runtime->begin_step();
  const auto take = [&](std::size_t steps, Duration time) {
    for (std::size_t i = 0; i < steps; ++i) {
      clock.advance(time);
      runtime->begin_step();
    }
  };
  take(Runtime::kStepsTimed + 4000, std::chrono::seconds(1));
  take(Runtime::kStepsTimed / 2 + 1, std::chrono::seconds(3));
  const RuntimeReport report = runtime->report();
  EXPECT_EQ(report.step_seconds_median, 3.0);
  EXPECT_EQ(report.steps, 1 + Runtime::kStepsTimed + 4000 + Runtime::kStepsTimed / 2 + 1);
  EXPECT_EQ(runtime->counts().steps, report.steps);
}

TEST_F(RuntimeTest, AsksForTheEndOfAnOperatorThatMovesTooMuchAndCannotBeRefused) {
  moves_of_oversize_ = Bytes();
  auto runtime = make(8);
  std::promise<void> asked;
  runtime->on_endless_op = [&] { asked.set_value(); };
  std::vector<void*> made;
  run_op(*runtime, 1, {}, [&] {
    for (int i = 0; i < 3; ++i) made.push_back(runtime->allocate(3 * kPageBytes));
    const std::future<void> is_asked = asked.get_future();
    while (is_asked.wait_for(Duration(0)) != std::future_status::ready)
      for (void* part : made)
        for (std::size_t page = 0; page < 3; ++page) ++word(part, page);
  });
  GoldenPart golden;
  golden.mask(std::regex("moved [0-9.]+ [MG]iB"), "moved SIZE");
  golden.add(runtime->report().refusal.text);
  for (void* memory : made) runtime->deallocate(memory);
  EXPECT_NO_THROW(run_op(*runtime, 2, {}, [] {})) << "whoever answers the signal may still save";
}

/// The alarm's thread is the parent's; the child waited for its end for ever.
TEST_F(RuntimeTest, LetsAForkedChildLeaveTheOversizeOperatorThatItWasForkedIn) {
  const auto runtime = make(8);
  pid_t child = 0;
  std::vector<void*> made;
  run_op(*runtime, 1, {}, [&] {
    for (int i = 0; i < 3; ++i) made.push_back(runtime->allocate(3 * kPageBytes));
    runtime->before_fork();
    child = ::fork();
    if (child == 0) {
      runtime->after_fork_in_child();
      ::alarm(60);  // Ends a child that hangs.
    } else {
      runtime->after_fork_in_parent();
    }
  });
  if (child == 0) ::_exit(7);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  for (void* memory : made) runtime->deallocate(memory);
}

}  // namespace
}  // namespace spillway::runtime
