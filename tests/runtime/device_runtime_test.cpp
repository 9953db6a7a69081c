// The runtime of a device that works behind the host's back, and whose memory nobody sees touched.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <span>
#include <thread>

#include "spillway/base/figure_text.h"
#include "spillway/runtime/host_workspace.h"
#include "spillway/runtime/runtime.h"
#include "support/error_text.h"
#include "support/named_op.h"
#include "support/running_op.h"
#include "swap/pages_cases.h"

namespace spillway::runtime {
namespace {

using swap::page_bytes;
using swap::page_size;

class DeviceRuntimeTest : public swap::PagesTest {
 protected:
  /// `patience`: how long it waits for room.
  std::unique_ptr<Runtime> make(std::size_t pages, Duration patience = std::chrono::seconds(10)) {
    swap::SwapEngineOptions engine;
    engine.patience = patience;
    engine.budget = page_size() * pages;
    engine.arena_size = 1_GiB;
    RuntimeOptions options;
    options.number = 1;
    options.given_so_far = [] { return swap::running.queue->record(); };
    options.budget = engine.budget;
    options.min_storage = page_size();
    return std::make_unique<Runtime>(options, make_engine(engine, swap::ram_store(64), clock_),
                                     clock_);
  }

  /// An operator on `uses` whose kernels are started by `body`, which returns what it hands out.
  template <typename Body>
  static void run_op(Runtime& runtime, std::initializer_list<void*> uses, const Body& body,
                     std::uint64_t signature = 1) {
    std::vector<RangeUse> found;
    for (void* const memory : uses) {
      found.push_back(runtime.find(memory));
      found.back().writes = true;
    }
    const NamedOp text("op");
    RunningOp op(runtime, signature, found, text);
    for (void* const memory : std::vector<void*>(body()))
      op.results.push_back(runtime.find(memory).storage);
  }

  void* result_of_op(Runtime& runtime, std::size_t pages) {
    void* made = nullptr;
    run_op(runtime, {}, [&] {
      made = runtime.allocate(page_size().count() * pages);
      return std::vector<void*>{made};
    });
    return made;
  }

  /// Starts a kernel that sets the first word at `memory`.
  device::Event start_kernel(void* memory) {
    const device::DeviceSpan from = device::host_span_of(value_);
    swap::running.queue->copy(
        {swap::running.device->id(), static_cast<std::byte*>(memory), from.size}, from);
    return swap::running.queue->record();
  }

  /// What is started from now on waits for `gate_`.
  void hold_kernels_back() {
    swap::running.queue->run([this] {
      gate_.get_future().wait();
      return device::Outcome{};
    });
  }

  /// The moment that another stream comes to once `end` is kept.
  device::Event moment_of(device::Queue& other, std::promise<void>& end) {
    other.run([&end] {
      end.get_future().wait();
      return device::Outcome{};
    });
    return other.record();
  }

  SteadyClock clock_;
  std::promise<void> gate_;
  std::uint64_t value_ = 42;
};

TEST_P(DeviceRuntimeTest, KeepsWhatIsFreedUntilTheDeviceIsDone) {
  const auto runtime = make(8);
  void* const used = result_of_op(*runtime, 1);
  hold_kernels_back();
  device::Event done;
  void* scratch = nullptr;
  run_op(*runtime, {used}, [&] {
    scratch = runtime->allocate(page_size().count());
    start_kernel(used);
    done = start_kernel(scratch);
    runtime->deallocate(scratch);
    return std::vector<void*>{};
  });
  runtime->deallocate(used);
  EXPECT_FALSE(runtime->find(used).storage.is_some());
  EXPECT_FALSE(runtime->find(scratch).storage.is_some());
  gate_.set_value();
  EXPECT_EQ(done.wait().error, "") << "the kernel has found no memory";
  swap::finish_operators();
  EXPECT_EQ(runtime->engine().make_room(page_size()), page_size());
  EXPECT_NE(start_kernel(used).wait().error, "") << "it was in nobody's way to give it back";
}

/// Of two streams that use memory past the operators, the one that frees it may be the later one.
TEST_P(DeviceRuntimeTest, KeepsWhatIsFreedUntilAllStreamsAreDone) {
  const auto runtime = make(8, Duration(0));
  void* const used = result_of_op(*runtime, 1);
  runtime->hold_until_freed(runtime->find(used).storage);
  hold_kernels_back();
  const auto other = swap::running.device->make_queue("another stream");
  std::promise<void> end_of_other;
  const device::Event until = moment_of(*other, end_of_other);
  const device::Event of_kernel = start_kernel(used);
  runtime->deallocate(used, until);
  device::Event of_scratch;
  run_op(*runtime, {}, [&] {
    void* const scratch = runtime->allocate(page_size().count());
    of_scratch = start_kernel(scratch);
    runtime->deallocate(scratch, until);
    return std::vector<void*>{};
  });
  end_of_other.set_value();
  EXPECT_EQ(until.wait().error, "");
  runtime->engine().make_room(page_size() * 8);
  gate_.set_value();
  EXPECT_EQ(of_kernel.wait().error, "") << "the kernel has found no memory";
  EXPECT_EQ(of_scratch.wait().error, "") << "the kernel has found no memory";
}

/// A collective on a slice of a buffer that is larger than all room.
TEST_P(DeviceRuntimeTest, HoldsOfWhatAnOperatorUsesThePartThatItUses) {
  const auto runtime = make(8);
  std::byte* flat = nullptr;
  const NamedOp text("op");
  runtime->announce_op();
  runtime->begin_op(1, {}, text, {.fills = false});
  flat = static_cast<std::byte*>(runtime->allocate(page_size().count() * 12));
  const StorageId storage = runtime->find(flat).storage;
  runtime->end_op(std::array{storage});
  const auto use = [&](std::size_t first, std::size_t pages) {
    RangeUse part = runtime->engine().find(flat + first * page_bytes(), page_size() * pages);
    part.writes = true;
    {
      const RunningOp op(*runtime, 2, std::array{part}, text);
      runtime->hold_until_freed(storage);
    }
    swap::finish_operators();
  };
  use(1, 2);
  use(2, 3);
  use(1, 2);
  for (int i = 0; i < 8; ++i) result_of_op(*runtime, 1);
  for (const std::size_t page : {1U, 2U, 3U, 4U})
    EXPECT_EQ(start_kernel(flat + page * page_bytes()).wait().error, "") << page;
  EXPECT_THROW(use(5, 5), BudgetError) << "4 stay of 8";
  runtime->deallocate(flat);
  void* const all = result_of_op(*runtime, 8);
  EXPECT_EQ(start_kernel(all).wait().error, "");
}

TEST_P(DeviceRuntimeTest, HoldsWhatOperatorsDoNotHandOut) {
  const auto runtime = make(8);
  void* const outside = runtime->allocate(page_size().count());
  void* hidden = nullptr;
  void* handed_out = nullptr;
  run_op(*runtime, {}, [&] {
    hidden = runtime->allocate(page_size().count());
    handed_out = runtime->allocate(page_size().count());
    return std::vector<void*>{handed_out};
  });
  std::vector<void*> others;
  for (int i = 0; i < 6; ++i) others.push_back(result_of_op(*runtime, 1));
  EXPECT_EQ(start_kernel(outside).wait().error, "");
  EXPECT_EQ(start_kernel(hidden).wait().error, "");
  EXPECT_NE(start_kernel(handed_out).wait().error, "") << "six pages came, and none has left";
  // Freed, they are in nobody's way.
  runtime->deallocate(outside);
  runtime->deallocate(hidden);
  void* const all = result_of_op(*runtime, 8);
  EXPECT_EQ(start_kernel(all).wait().error, "");
}

/// Else "8 pages do not fit into 8" is all that is told.
TEST_P(DeviceRuntimeTest, TellsWhatKernelsKeepBesideAnOperatorThatDoesNotFit) {
  const auto runtime = make(8);
  void* const of_kernels = runtime->allocate(page_size().count());
  runtime->hold_until_freed(runtime->find(of_kernels).storage);
  std::string told;
  try {
    result_of_op(*runtime, 8);
  } catch (const Error& error) {
    told = error.what();
  }
  EXPECT_NE(told.find(message("it needs {} at once beside {} that kernels keep.", 8 * page_size(),
                              page_size())),
            std::string::npos)
      << told;
}

TEST_P(DeviceRuntimeTest, LetsGoOfWhatWasMadeOutsideWhenAnOperatorUsesIt) {
  const auto runtime = make(8);
  void* const loaded = runtime->allocate(page_size().count());
  void* const of_kernels = runtime->allocate(page_size().count());
  runtime->hold_until_freed(runtime->find(of_kernels).storage);
  run_op(*runtime, {loaded, of_kernels}, [] { return std::vector<void*>{}; });
  swap::finish_operators();
  for (int i = 0; i < 7; ++i) result_of_op(*runtime, 1);
  EXPECT_EQ(start_kernel(of_kernels).wait().error, "");
  EXPECT_NE(start_kernel(loaded).wait().error, "") << "seven pages came, and none has left";
}

TEST_P(DeviceRuntimeTest, FetchesWhatAnOperatorUsesAndHoldsItUntilTheDeviceIsDone) {
  const auto runtime = make(4);
  std::array<void*, 6> made{};
  for (void*& memory : made) memory = result_of_op(*runtime, 1);
  for (int round = 0; round < 3; ++round)
    for (void* const memory : made) {
      device::Event done;
      run_op(*runtime, {memory}, [&] {
        done = start_kernel(memory);
        return std::vector<void*>{};
      });
      EXPECT_EQ(done.wait().error, "");
    }
  EXPECT_GT(runtime->engine().statistics().fetched, page_size() * 6);
}

TEST_P(DeviceRuntimeTest, MakesRoomForWhatOthersAllocate) {
  const auto runtime = make(8);
  std::vector<void*> made;
  for (int i = 0; i < 8; ++i) made.push_back(result_of_op(*runtime, 1));
  runtime->count_other(page_size() * 3);
  std::size_t there = 0;
  for (void* const memory : made) there += start_kernel(memory).wait().error.empty() ? 1 : 0;
  EXPECT_EQ(there, 5U);
  EXPECT_THROW(runtime->count_other(page_size() * 8), BudgetError);
  runtime->uncount_other(page_size() * 3);
}

TEST_P(DeviceRuntimeTest, NamesASmallestBudgetThatHasRoomForWhatStays) {
  const auto run = [this](Runtime& runtime) {
    ASSERT_NE(runtime.allocate(2 * page_size().count()), nullptr);  // Outside of operators.
    void* const input = result_of_op(runtime, 3);
    void* result = nullptr;
    run_op(runtime, {input}, [&] {
      result = runtime.allocate(page_size().count());
      return std::vector<void*>{result};
    });
    runtime.deallocate(input);
    runtime.deallocate(result);
  };
  Bytes smallest;
  {
    const auto runtime = make(32);
    run(*runtime);
    smallest = runtime->report().smallest_budget;
    EXPECT_GE(smallest, page_size() * 6);
  }
  const auto runtime = make(smallest / page_size());
  run(*runtime);
}

/// The first operator that wants a workspace makes it, and later ones find it there.
TEST_P(DeviceRuntimeTest, CountsWhatAnOperatorMakesAndKeepsOnceInTheSmallestBudget) {
  constexpr std::size_t kWorkspace = 4;
  // In pages: taken and given back before the workspace is made; beside it.
  for (const std::size_t before : {std::size_t{0}, std::size_t{6}}) {
    SCOPED_TRACE(before);
    const std::size_t own = std::max<std::size_t>(before, 3);
    const auto fits = [&](Runtime& runtime, int times) {
      bool is_refused = false;
      void* workspace = nullptr;
      for (int i = 0; i < times; ++i) {
        void* result = nullptr;
        const auto body = [&] {
          if (before > 0) runtime.deallocate(runtime.allocate(page_size().count() * before));
          if (workspace == nullptr) workspace = runtime.allocate(page_size().count() * kWorkspace);
          result = runtime.allocate(page_size().count() * 3);
        };
        run_op(runtime, {}, [&] {
          try {
            body();
          } catch (const BudgetError&) {
            is_refused = true;
          }
          return std::vector<void*>{result};
        });
        runtime.deallocate(result);
      }
      runtime.deallocate(workspace);
      return !is_refused;
    };
    {
      const auto runtime = make(32);
      EXPECT_TRUE(fits(*runtime, 1));
      EXPECT_EQ(runtime->report().smallest_budget, page_size() * (own + kWorkspace + 1));
    }
    EXPECT_TRUE(fits(*make(own + kWorkspace), 2)) << "a page was to spare";
    EXPECT_FALSE(fits(*make(own + kWorkspace - 1), 2));
  }
}

/// Refused behind its workspace, as a first matrix product may be, the advice at the end had that
/// twice: it named 20 MiB where the error had named 12.
TEST_P(DeviceRuntimeTest, NamesTheSameSmallestBudgetWhenAnOperatorIsRefusedAndAtTheEnd) {
  const auto runtime = make(8);
  const auto pages = [](std::size_t count) { return page_size() * count; };
  void* const small = result_of_op(*runtime, 2);
  run_op(*runtime, {small}, [] { return std::vector<void*>{}; });
  void* workspace = nullptr;
  std::string told;
  run_op(*runtime, {small}, [&] {
    workspace = runtime->allocate(pages(4).count());
    try {
      runtime->allocate(pages(5).count());
    } catch (const BudgetError& error) {
      told = error.what();
    }
    return std::vector<void*>{};
  });
  EXPECT_EQ(
      told,
      message(
          "Spillway: op does not fit into the budget of {} of cuda:0: it needs {} at once ({} that "
          "it is given, {} that it has made so far and {} that it asks for now). "
          "smallest budget: {} or more (needed at once by op; the first step has not "
          "ended)",
          pages(8), pages(11), pages(2), pages(4), pages(5), as_option(pages(12))));
  EXPECT_EQ(runtime->report().smallest_budget, pages(12));
  EXPECT_EQ(runtime->report().largest_op, "op");
  runtime->deallocate(workspace);
  runtime->deallocate(small);
}

TEST_P(DeviceRuntimeTest, RefusesAnOperatorThatDoesNotFitByTheNameOfTheDevice) {
  const auto runtime = make(4);
  void* const first = result_of_op(*runtime, 3);
  void* const second = result_of_op(*runtime, 3);
  EXPECT_EQ(
      error_text<BudgetError>([&] {
        run_op(*runtime, {first, second}, [] { return std::vector<void*>{}; });
      }),
      message("Spillway: op does not fit into the budget of {} of cuda:0: it needs {} at once. "
              "smallest budget: {} or more (needed at once by op; the first step has not ended)",
              page_size() * 4, page_size() * 6, as_option(page_size() * 7)));
}

/// An operator begins on the runtimes of the memory that it uses, and on no other.
TEST_P(DeviceRuntimeTest, KnowsWhatRunsOnAnotherRuntime) {
  const auto runtime = make(8);
  EXPECT_FALSE(Runtime::runs_operator());
  run_op(*runtime, {}, [&] {
    EXPECT_TRUE(Runtime::runs_operator());
    EXPECT_TRUE(runtime->has_begun_op());
    return std::vector<void*>{};
  });
  EXPECT_FALSE(Runtime::runs_operator());
}

/// What one step with an update shows is expected of the next ones, as long as they are alike.
TEST_P(DeviceRuntimeTest, SendsToTheHostWhatItWorksOnNextWhenItsLastOperatorHasEnded) {
  const auto runtime = make(8);
  const auto spilled = [&] { return runtime->engine().statistics().spilled; };
  Bytes sent;
  Bytes worked_on;
  const auto step = [&](bool is_longer, bool is_sent) {
    runtime->step_boundary();
    void* const before = is_longer ? result_of_op(*runtime, 1) : nullptr;
    void* const gradient = result_of_op(*runtime, 1);
    const auto add = [&] {
      start_kernel(gradient);
      return std::vector<void*>{};
    };
    run_op(*runtime, {gradient}, add, /*signature=*/2);
    void* const after = result_of_op(*runtime, 1);
    swap::finish_operators();
    if (is_sent) sent += page_size();
    ASSERT_EQ(runtime->report().sent_to_host, sent);
    while (is_sent && spilled() == worked_on) std::this_thread::yield();
    EXPECT_EQ(spilled(), is_sent ? worked_on + page_size() : worked_on);
    const swap::HostUse use{runtime->find(gradient)};
    {
      swap::HostHold hold;
      ASSERT_TRUE(HostWorkspace(*runtime).hold(hold, {&use, 1}));
      EXPECT_EQ(std::memcmp(hold.pages(0)[0], &value_, sizeof value_), 0);
    }
    worked_on += page_size();
    EXPECT_EQ(spilled(), worked_on);
    for (void* const each : {before, gradient, after}) runtime->deallocate(each);
  };
  step(false, false);
  step(false, false);
  step(false, true);
  step(false, true);
  step(true, false);
  step(true, true);
}

INSTANTIATE_TEST_SUITE_P(Pages, DeviceRuntimeTest, testing::Values(swap::PagesCase()),
                         swap::pages_case);

}  // namespace
}  // namespace spillway::runtime
