// The runtime with a plan that recomputes, without LibTorch.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "spillway/memory/host_pages.h"
#include "spillway/planner/strategies.h"
#include "spillway/runtime/runtime.h"
#include "spillway/swap/spill_store_factory.h"
#include "support/best_mapper.h"
#include "support/error_text.h"
#include "support/forwarding_store.h"
#include "support/golden_part.h"
#include "support/named_op.h"
#include "support/residency_orders.h"
#include "support/running_op.h"
#include "support/timed_stream.h"

namespace spillway::runtime {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

constexpr std::size_t kPages = 3;  // Of each storage.
constexpr std::size_t kLayers = 6;
constexpr std::size_t kTightPages = 15;  // Room for five storages, where eight live at once.

std::uint64_t& word(void* memory) { return *static_cast<std::uint64_t*>(memory); }

std::unique_ptr<swap::SpillStore> make_store() {
  swap::SpillStoreOptions store;
  store.kind = swap::StoreKind::kRam;
  store.ram_capacity = kPageSize * 256;
  return swap::make_spill_store(store).store;
}

std::unique_ptr<Runtime> make_runtime(
    const Clock& clock, const planner::Strategy& strategy = planner::strategy_named("dtr"),
    std::unique_ptr<swap::SpillStore> store = make_store(),
    const std::function<device::Event()>& moment = {}) {
  swap::SwapEngineOptions engine;
  engine.budget = kPageSize * kTightPages;
  engine.arena_size = 8_GiB;
  RuntimeOptions options;
  options.budget = engine.budget;
  options.moment = moment;
  options.planning = {.recomputes = true, .strategy = &strategy};
  return std::make_unique<Runtime>(
      options,
      std::make_unique<swap::SwapEngine>(engine, memory::make_host_pages(best_mapper()),
                                         std::move(store), clock),
      clock);
}

/// A chain of layers, each of which adds one to what it gets. Its backward pass adds what it finds
/// to one storage of parameters.
class Chain {
 public:
  explicit Chain(Runtime& runtime)
      : runtime_(runtime),
        input_(runtime.allocate(kPages * kPageBytes)),
        parameters_(runtime.allocate(kPages * kPageBytes)) {
    word(input_) = word(parameters_) = 0;
  }
  ~Chain() {
    for (void* const memory : values_) runtime_.deallocate(memory);
    runtime_.deallocate(parameters_);
    runtime_.deallocate(input_);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void forward() {
    for (std::uint64_t i = 0; i < kLayers; ++i) add_one(i, i == 0 ? input_ : values_.back());
  }
  void backward() {
    for (std::uint64_t i = kLayers; i-- > 0; values_.pop_back()) {
      run(100 + i, {{values_.back()}, {parameters_, true}}, false,
          [&] { word(parameters_) += word(values_.back()); });
      runtime_.deallocate(values_.back());
    }
    runtime_.step_updated();
    runtime_.step_boundary();
  }
  /// An operator that no step has had.
  void touch_unplanned() {
    run(999, {{parameters_}}, false, [] {});
  }
  /// One that has nothing to do with storages.
  void idle() {
    run(998, {}, false, [] {});
  }

  /// One that makes storages that share pages, two each.
  std::vector<void*> make_small(int count) {
    std::vector<void*> made;
    run(997, {}, false, [&] {
      for (int i = 0; i < count; ++i) made.push_back(runtime_.allocate(kPageBytes / 8 * 3));
    });
    return made;
  }

  bool is_dropped(void* memory) const {
    return runtime_.engine().is_dropped(runtime_.find(memory).storage);
  }
  std::size_t dropped() const {
    return static_cast<std::size_t>(std::count_if(
        values_.begin(), values_.end(), [this](void* memory) { return is_dropped(memory); }));
  }
  void train(int steps) {
    for (int step = 0; step < steps; ++step) {
      forward();
      backward();
    }
  }
  std::uint64_t sum() const { return word(parameters_); }
  /// The latest storage that is in memory and has a dropped one made of it.
  void* ingredient() const {
    for (std::size_t i = values_.size(); i-- > 1;)
      if (is_dropped(values_[i]) && !is_dropped(values_[i - 1])) return values_[i - 1];
    return input_;
  }

  bool fails = false;      ///< What runs again does.
  bool overflows = false;  ///< It asks for more than there is, past the runtime.
  std::function<void()> while_it_runs, while_it_replays;

 private:
  struct Use {
    void* memory;
    bool writes = false;
  };

  class Addition final : public recompute::CallBody {
   public:
    explicit Addition(Chain& chain) : chain_(chain) {}
    std::string name() const override { return "the addition"; }
    Bytes bytes_held() const override { return Bytes(); }
    std::vector<recompute::OutputMemory> run(const recompute::RecordedCall& call,
                                             const recompute::AddressOf& address_of) override {
      if (chain_.fails) throw std::runtime_error("no way\nin add.cpp:7");
      if (chain_.while_it_replays) chain_.while_it_replays();
      Runtime& runtime = chain_.runtime_;
      if (chain_.overflows) runtime.engine().allocate(kPageSize * 2 * kTightPages, nullptr);
      void* const out = runtime.allocate(kPages * kPageBytes);
      word(out) = word(address_of(call.inputs.front().id)) + 1;
      const auto give_back = [&runtime](void* memory) { runtime.deallocate(memory); };
      return {{call.outputs.front().id, out, call.outputs.front().bytes,
               std::shared_ptr<void>(out, give_back)}};
    }

   private:
    Chain& chain_;
  };

  template <typename Body>
  void run(std::uint64_t signature, std::initializer_list<Use> uses, bool is_replayable,
           const Body& body) {
    std::vector<RangeUse> found;
    for (const Use& use : uses) {
      found.push_back(runtime_.find(use.memory));
      found.back().writes = use.writes;
    }
    const NamedOp text("op " + std::to_string(signature));
    const RunningOp op(runtime_, signature, found, text, {.is_replayable = is_replayable});
    if (while_it_runs) while_it_runs();
    body();
  }

  void add_one(std::uint64_t signature, void* in) {
    run(signature, {{in}}, true, [&] {
      void* const out = runtime_.allocate(kPages * kPageBytes);
      values_.push_back(out);
      word(out) = word(in) + 1;
      if (!runtime_.wants_record()) return;
      recompute::RecordedCall call(std::make_unique<Addition>(*this));
      call.inputs = {{runtime_.find(in).storage}};
      call.outputs = {{runtime_.find(out).storage, Bytes(kPages * kPageBytes)}};
      runtime_.keep(std::move(call));
    });
  }

  Runtime& runtime_;
  void* const input_;
  void* const parameters_;
  std::vector<void*> values_;
};

/// Which values are dropped follows from times that were measured.
void mask_counts(GoldenPart& golden) {
  golden.mask(std::regex("[0-9]+ tensors? that had"), "N tensors that had");
}

/// A chain in the middle of a step, with values dropped.
class RuntimeWithDrops : public ::testing::Test {
 protected:
  void SetUp() override {
    chain.train(6);
    EXPECT_EQ(chain.sum(), 6u * 21u);
    chain.forward();
    ASSERT_GT(chain.dropped(), 0u);
  }

  const SteadyClock clock;
  const std::unique_ptr<Runtime> runtime = make_runtime(clock);
  Chain chain{*runtime};
};

TEST_F(RuntimeWithDrops, BringsAllBackAtTheNextOperatorWhenThatHasFailed) {
  chain.fails = true;
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(chain.touch_unplanned(), RecomputeError);
  GoldenPart().add(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kRecomputation);
  ASSERT_GT(chain.dropped(), 0u);
  chain.fails = false;
  chain.idle();
  EXPECT_EQ(chain.dropped(), 0u);
  chain.backward();
  EXPECT_EQ(chain.sum(), 7u * 21u);
}

TEST_F(RuntimeWithDrops, KeepsTheReasonOfARefusedWriteWhateverElseGetsThrough) {
  chain.fails = true;
  EXPECT_THROW(runtime->before_write(runtime->find(chain.ingredient())), RecomputeError);
  runtime->deallocate(runtime->allocate(kPageBytes));
  const Refusal refusal = runtime->report().refusal;
  EXPECT_EQ(refusal.cause, RefusalCause::kRecomputation);
  GoldenPart().add(refusal.text);
}

TEST_F(RuntimeWithDrops, NamesTheOperatorWhoseResultFindsNoRoom) {
  chain.overflows = true;
  GoldenPart golden;
  golden.mask(std::regex("beside .* in use"), "beside SIZE in use");
  golden.add(error_text<BudgetError>([&] { chain.touch_unplanned(); }));
  chain.overflows = false;
  chain.backward();
  EXPECT_EQ(chain.sum(), 7u * 21u);
}

/// Pages that the operator before it made are none of a replay's.
TEST_F(RuntimeWithDrops, CountsSmallStoragesOfReplaysAlone) {
  std::vector<void*> small = chain.make_small(4);
  const Bytes needed = runtime->report().smallest_budget;
  chain.while_it_replays = [&] {
    for (void* const memory : std::exchange(small, {})) runtime->deallocate(memory);
    runtime->deallocate(runtime->allocate(kPageBytes / 8 * 3));
  };
  chain.backward();
  EXPECT_TRUE(small.empty());
  EXPECT_LE(runtime->report().smallest_budget, needed + kPageSize);
}

/// What it holds does not come back while it is told to be broken.
class BreakableStore final : public swap::ForwardingStore {
 public:
  BreakableStore(std::unique_ptr<swap::SpillStore> child, const std::atomic<bool>& is_broken)
      : ForwardingStore(std::move(child)), is_broken_(is_broken) {}

 private:
  void do_reap(std::vector<swap::TransferResult>& results,
               std::chrono::milliseconds timeout) override {
    child_->reap(results, timeout);
    for (swap::TransferResult& result : results)
      if (is_broken_.load() && result.transfer.direction == swap::Direction::kRead)
        result.error = EIO, result.detail = "a fault on purpose";
  }

  const std::atomic<bool>& is_broken_;
};

void push_out(Runtime& runtime, void* memory) {
  const auto left = [&] {
    const swap::SwapStatistics now = runtime.engine().statistics();
    return now.spilled + now.left_clean;
  };
  const Bytes before = left();
  write_out(runtime.engine(), runtime.find(memory).storage, kPages);
  while (left() < before + kPageSize * kPages) std::this_thread::yield();
}

/// A fork brings back what is dropped, though nobody may need it: it was told as the trainer's end.
TEST(RuntimeRecomputing, GoesOnWhereASecondRunFailsThatNobodyAskedFor) {
  const SteadyClock clock;
  std::atomic<bool> is_broken = false;
  const auto runtime = make_runtime(clock, planner::strategy_named("dtr"),
                                    std::make_unique<BreakableStore>(make_store(), is_broken));
  Chain chain(*runtime);
  chain.train(6);
  chain.forward();
  ASSERT_GT(chain.dropped(), 0u);
  ASSERT_GT(word(chain.ingredient()), 0u) << "it is in memory, and none from before the step";
  push_out(*runtime, chain.ingredient());
  is_broken = true;
  ::testing::internal::CaptureStderr();
  runtime->before_fork();
  runtime->after_fork_in_parent();
  GoldenPart golden;
  mask_counts(golden);
  golden.add(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(runtime->report().refusal.cause, RefusalCause::kNone);
  EXPECT_GT(chain.dropped(), 0u);
  is_broken = false;
  chain.backward();
  EXPECT_EQ(chain.sum(), 7u * 21u);
}

/// The child has no thread but this one, and its locks are its parent's: of those that the replay
/// goes on to take, it waited for ever for the first.
TEST_F(RuntimeWithDrops, EndsTheForkedChildOfAnOperatorThatRunsAgain) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not support a fork of a process with threads";
#endif
  pid_t child = -1;
  int status = 0;
  chain.while_it_replays = [&] {
    if (child != -1) return;
    runtime->before_fork();
    child = ::fork();
    if (child == 0) {
      ::alarm(60);
      runtime->after_fork_in_child();
      throw std::runtime_error("the child has no room for results");
    }
    runtime->after_fork_in_parent();
    ::waitpid(child, &status, 0);
  };
  ::testing::internal::CaptureStderr();
  chain.backward();
  if (child == 0) ::_exit(0);
  const std::string told = ::testing::internal::GetCapturedStderr();
  ASSERT_GT(child, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << status << told;
  GoldenPart golden;
  mask_counts(golden);
  golden.add(told);
  EXPECT_EQ(chain.sum(), 7u * 21u);
}

/// Its mutex is held through the whole replay, and for ever where nobody catches its exception:
/// whoever writes the last words may not ask for it.
TEST(RuntimeRecomputing, TellsHowTheRunWasWhileAnOperatorRunsAgain) {
  const SteadyClock clock;
  const auto runtime = make_runtime(clock);
  Chain chain(*runtime);
  RuntimeReport report;
  chain.while_it_replays = [&] { std::thread([&] { report = runtime->report(); }).join(); };
  chain.train(6);
  EXPECT_GT(report.replays, 0u);
  EXPECT_EQ(report.not_reported, "");
  EXPECT_GT(report.learned.plans, 0u);
}

// On a device, where the host is done with an operator long before the device is.
TEST(RuntimeRecomputing, LeavesSecondRunsOutOfWhatTheDeviceTakes) {
  using std::chrono::milliseconds;
  ManualClock clock;
  TimedStream stream(clock);
  const auto runtime = make_runtime(clock, planner::strategy_named("dtr"), make_store(),
                                    [&] { return stream.record(); });
  Chain chain(*runtime);
  chain.while_it_runs = [&] { stream.launch(milliseconds(10)); };
  chain.while_it_replays = [&] { stream.launch(milliseconds(500)); };
  std::uint64_t replays = 0;
  for (int step = 0; step < 40; ++step) {
    const std::uint64_t before = runtime->report().replays;
    chain.train(1);
    replays = runtime->report().replays - before;
    stream.synchronize();
  }
  EXPECT_GT(replays, 0u);
  // Plans take them to last as long as the first ones.
  EXPECT_NEAR(runtime->report().learned.planned_seconds,
              0.01 * static_cast<double>(2 * kLayers + replays), 1e-9);
}

/// The first plan waits until it may come.
struct SlowPlan {
  std::promise<void> is_asked_for;
  std::promise<void> may_come;
  std::once_flag first;
};
SlowPlan* slow_plan = nullptr;  // A strategy is a plain function.

planner::StepPlan make_slow_plan(const profile::StepTape& tape, const planner::SwapLimits& limits,
                                 const planner::StopCheck& should_stop) {
  std::call_once(slow_plan->first, [] {
    slow_plan->is_asked_for.set_value();
    slow_plan->may_come.get_future().wait();
  });
  return planner::strategy_named("dtr").make(tape, limits, should_stop);
}

TEST(RuntimeRecomputing, TellsHowTheRunWasWhileAStepWaitsForItsPlan) {
  const SteadyClock clock;
  SlowPlan plan;
  slow_plan = &plan;
  const planner::Strategy strategy{"slow", "", "", &make_slow_plan};
  const auto runtime = make_runtime(clock, strategy);
  std::thread trainer([&] {
    Chain chain(*runtime);
    chain.train(4);
  });
  plan.is_asked_for.get_future().wait();
  const RuntimeReport report = runtime->report(Duration(0));
  const RuntimeCounts counts = runtime->counts();
  plan.may_come.set_value();
  trainer.join();
  EXPECT_EQ(report.not_reported.find("what was learned of the steps, since it was in use"), 0u);
  EXPECT_EQ(report.learned.steps, 0u);
  EXPECT_GT(report.ops, 0u);
  EXPECT_EQ(counts.ops, report.ops);
  EXPECT_EQ(counts.steps, report.steps);
  EXPECT_GT(counts.steps, 0u);
  EXPECT_GT(report.memory.live_peak, Bytes());
  EXPECT_EQ(runtime->report().not_reported, "");
}

}  // namespace
}  // namespace spillway::runtime
