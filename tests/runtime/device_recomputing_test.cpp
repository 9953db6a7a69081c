// The runtime of a device that works behind the host's back, with a plan that recomputes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "spillway/planner/strategies.h"
#include "spillway/runtime/runtime.h"
#include "support/named_op.h"
#include "support/running_op.h"
#include "swap/pages_cases.h"

namespace spillway::runtime {
namespace {

using swap::page_size;

constexpr std::size_t kPages = 3;  // Of each storage.
constexpr std::size_t kLayers = 6;

/// A chain of layers of one device, each of which hands on the number that it gets. In backward
/// each number goes to the host.
class DeviceRecomputingTest : public swap::PagesTest {
 protected:
  void SetUp() override {
    swap::PagesTest::SetUp();
    swap::SwapEngineOptions engine;
    // Room for five storages, where seven live at once, and for a workspace.
    engine.budget = page_size() * 16;
    engine.arena_size = 1_GiB;
    RuntimeOptions options;
    options.number = 1;
    options.given_so_far = [] { return swap::running.queue->record(); };
    options.before_replay = [this] { calls_.push_back("before"); };
    options.after_replay = [this] { calls_.push_back("after"); };
    options.budget = engine.budget;
    options.min_storage = page_size();
    options.planning = {.recomputes = true, .strategy = &planner::strategy_named("dtr")};
    runtime_ = std::make_unique<Runtime>(options, make_engine(engine, swap::ram_store(64), clock_),
                                         clock_);
  }
  void TearDown() override {
    for (void* const memory : values_) runtime_->deallocate(memory);
    runtime_.reset();
    swap::PagesTest::TearDown();
  }

  class HandOn final : public recompute::CallBody {
   public:
    explicit HandOn(DeviceRecomputingTest& test) : test_(test) {}
    std::string name() const override { return "handing on"; }
    Bytes bytes_held() const override { return Bytes(); }
    std::vector<recompute::OutputMemory> run(const recompute::RecordedCall& call,
                                             const recompute::AddressOf& address_of) override {
      test_.calls_.push_back("run");
      Runtime& runtime = *test_.runtime_;
      void* const out = test_.made_from(address_of(call.inputs.front().id));
      if (test_.workspace_ == nullptr) test_.workspace_ = runtime.allocate(page_size().count());
      const auto give_back = [&runtime](void* memory) { runtime.deallocate(memory); };
      return {{call.outputs.front().id, out, call.outputs.front().bytes,
               std::shared_ptr<void>(out, give_back)}};
    }

   private:
    DeviceRecomputingTest& test_;
  };

  device::DeviceSpan number_at(void* memory) const {
    return {swap::running.device->id(), static_cast<std::byte*>(memory), Bytes(sizeof(number_))};
  }

  /// A kernel hands the number on, some time later.
  void* made_from(void* in) {
    void* const out = runtime_->allocate(page_size().count() * kPages);
    swap::running.queue->copy(number_at(out), number_at(in));
    return out;
  }

  void run_op(std::uint64_t signature, std::vector<void*> uses, bool is_replayable,
              const std::function<std::vector<void*>()>& body) {
    std::vector<RangeUse> found;
    for (void* const memory : uses) found.push_back(runtime_->find(memory));
    const NamedOp text("op " + std::to_string(signature));
    RunningOp op(*runtime_, signature, found, text, {.is_replayable = is_replayable});
    for (void* const memory : body()) op.results.push_back(runtime_->find(memory).storage);
  }

  void forward(std::uint64_t number) {
    number_ = number;
    run_op(1, {}, false, [&] {
      values_.push_back(runtime_->allocate(page_size().count() * kPages));
      swap::running.queue->copy(number_at(values_.back()), device::host_span_of(number_));
      return std::vector<void*>{values_.back()};
    });
    for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
      void* const in = values_.back();
      run_op(10 + layer, {in}, true, [&] {
        void* const out = made_from(in);
        values_.push_back(out);
        if (runtime_->wants_record()) {
          recompute::RecordedCall call(std::make_unique<HandOn>(*this));
          call.inputs = {{runtime_->find(in).storage}};
          call.outputs = {{runtime_->find(out).storage, page_size() * kPages}};
          runtime_->keep(std::move(call));
        }
        return std::vector<void*>{out};
      });
    }
  }

  void backward() {
    for (; !values_.empty(); values_.pop_back()) {
      void* const value = values_.back();
      run_op(100 + values_.size(), {value}, false, [&] {
        found_.push_back(0);
        swap::running.queue->copy(device::host_span_of(found_.back()), number_at(value));
        swap::finish_operators();
        return std::vector<void*>{};
      });
      runtime_->deallocate(value);
    }
    runtime_->step_updated();
    runtime_->step_boundary();
  }

  bool is_dropped(void* value) const {
    return runtime_->engine().is_dropped(runtime_->find(value).storage);
  }
  std::ptrdiff_t dropped() const {
    return std::count_if(values_.begin(), values_.end(),
                         [this](void* value) { return is_dropped(value); });
  }

  SteadyClock clock_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<void*> values_;
  std::vector<std::uint64_t> found_;
  std::vector<std::string> calls_;  ///< What came before, in and after replays.
  std::uint64_t number_ = 0;
  void* workspace_ = nullptr;  ///< Of the kernels that run again.
};

TEST_P(DeviceRecomputingTest, FollowsAPlanThatDropsAndComputesAgain) {
  for (std::uint64_t step = 1; step <= 6; ++step) {
    found_.clear();
    forward(step);
    backward();
    EXPECT_EQ(found_, std::vector<std::uint64_t>(kLayers + 1, step));
  }
  const RuntimeReport report = runtime_->report();
  EXPECT_GT(report.memory.dropped, page_size() * kPages);
  ASSERT_GT(calls_.size(), 0U);
  EXPECT_EQ(calls_.size() % 3, 0U);
  for (std::size_t i = 0; i < calls_.size(); i += 3) {
    EXPECT_EQ(calls_[i], "before");
    EXPECT_EQ(calls_[i + 1], "run");
    EXPECT_EQ(calls_[i + 2], "after");
  }
  // What a second run has made and kept to itself has stayed.
  swap::running.queue->copy(number_at(workspace_), device::host_span_of(number_));
  EXPECT_EQ(swap::running.queue->record().wait().error, "");
}

/// A child cannot use the device, so nothing has to come back for it.
TEST_P(DeviceRecomputingTest, LeavesDroppedAtAForkWhatNoChildCanRead) {
  for (std::uint64_t step = 1; step <= 6; ++step) {
    forward(step);
    backward();
  }
  forward(7);
  const auto calls_before = calls_;
  const auto dropped_before = dropped();
  ASSERT_GT(dropped_before, 0);
  runtime_->before_fork();
  runtime_->after_fork_in_parent();
  EXPECT_EQ(dropped(), dropped_before);
  EXPECT_EQ(calls_, calls_before);
  found_.clear();
  backward();
  EXPECT_EQ(found_, std::vector<std::uint64_t>(kLayers + 1, 7));
}

/// The trainer frees what another stream still uses (record_stream), and a dropped value is made
/// of.
TEST_P(DeviceRecomputingTest, KeepsFreedIngredientsUntilOtherStreamsAreDone) {
  for (std::uint64_t step = 1; step <= 4; ++step) {
    forward(step);
    backward();
  }
  forward(5);
  const auto ingredient = std::adjacent_find(
      values_.begin(), values_.end(),
      [this](void* in, void* out) { return !is_dropped(in) && is_dropped(out); });
  ASSERT_NE(ingredient, values_.end());
  void* const freed = *ingredient;
  values_.erase(ingredient);
  const auto other = swap::running.device->make_queue("another stream");
  std::promise<void> gate;
  other->run([&gate] {
    gate.get_future().wait();
    return device::Outcome{};
  });
  std::uint64_t read = 0;
  other->copy(device::host_span_of(read), number_at(freed));
  const device::Event until = other->record();
  runtime_->deallocate(freed, until);
  found_.clear();
  backward();
  EXPECT_EQ(found_, std::vector<std::uint64_t>(kLayers, 5));
  gate.set_value();
  EXPECT_EQ(until.wait().error, "") << "its memory has gone";
  EXPECT_EQ(read, 5U);
}

TEST_P(DeviceRecomputingTest, NeitherDropsNorTrustsWhatMayBeWrittenUnseen) {
  for (std::uint64_t step = 1; step <= 4; ++step) {
    forward(step);
    backward();
  }
  ASSERT_GT(calls_.size(), 0U);
  forward(5);
  std::size_t held = 0;
  ASSERT_GT(dropped(), 0);
  // The program takes the pointers of all that is there, and writes.
  for (void* const value : values_) {
    if (is_dropped(value)) continue;
    if (held == 2) break;
    ++held;
    runtime_->hold_until_freed(runtime_->find(value).storage);
    number_ = 77;
    swap::running.queue->copy(number_at(value), device::host_span_of(number_));
    swap::finish_operators();
  }
  found_.clear();
  backward();
  EXPECT_EQ(std::count(found_.begin(), found_.end(), 77U), std::ptrdiff_t(held));
  EXPECT_EQ(std::count(found_.begin(), found_.end(), 5U), std::ptrdiff_t(found_.size() - held));
}

INSTANTIATE_TEST_SUITE_P(Pages, DeviceRecomputingTest, testing::Values(swap::PagesCase()),
                         swap::pages_case);

}  // namespace
}  // namespace spillway::runtime
