// Spillway in this process, whose tensors are LibTorch's. It starts once per process, and each case
// is a process of its own.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/library.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "spillway/spillway.h"
#include "support/sanitized.h"
#include "support/temporary_directory.h"

namespace spillway::torch_binding {
namespace {

using ::testing::Ge;
using ::testing::HasSubstr;

class CoreCase : public ::testing::Test {
 protected:
  void start(const std::string& budget,
             std::vector<std::pair<std::string, std::string>> settings = {}) {
    settings.emplace_back("progress", "off");
    spillway::start({.budget = budget, .nvme = {directory_.path()}, .settings = settings});
  }

  TemporaryDirectory directory_;
};

/// A thread that does what it is given, piece by piece.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    run({});
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Returns when it is done. Empty: the thread ends.
  void run(std::function<void()> piece) {
    std::unique_lock lock(mutex_);
    piece_ = std::move(piece);
    has_piece_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !has_piece_; });
  }

 private:
  void work() {
    for (bool goes_on = true; goes_on;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return has_piece_; });
      goes_on = static_cast<bool>(piece_);
      if (goes_on) piece_();
      has_piece_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> piece_;
  bool has_piece_ = false;
  std::thread thread_;
};

class OlderTensors : public CoreCase {};

TEST_F(OlderTensors, AreToldOfOnce) {
  const at::Tensor older = at::ones({1 << 20});
  const at::Tensor small = at::ones({1 << 10});
  start("64MiB");
  at::Tensor newer = at::ones({1 << 20});
  ::testing::internal::CaptureStderr();
  newer.add_(newer).mul_(small.sum());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  newer.add_(older);
  newer.add_(older);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("warning: a tensor of 4.00 MiB was made before Spillway started"));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
}

class WrongStart : public CoreCase {};

TEST_F(WrongStart, IsToldInWordsOfTheFunction) {
  try {
    start("4");
    FAIL() << "a budget without a unit was taken";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("start(): budget: size without a unit: '4'"));
  }
}

TEST_F(WrongStart, LeavesAProgramWithoutSpillway) {
  EXPECT_THROW(start("64MiB", {{"update", "host"}, {"dispatch-key", "record-function"}}),
               std::runtime_error);
  EXPECT_THROW(spillway::statistics(), std::runtime_error);
  EXPECT_EQ(at::ones({1 << 20}).sum().item<float>(), 1 << 20);
  start("64MiB");
  const at::Tensor tensor = at::ones({1 << 20});
  EXPECT_THAT(spillway::statistics().needed_bytes, Ge(tensor.nbytes()));
}

/// The part for CUDA is missing, or it finds in the library of that name nothing that it needs.
TEST_F(WrongStart, BesideACudaThatCannotBeServedLeavesAProgramWithoutSpillway) {
#ifdef SPILLWAY_C10_CUDA_NAME
  ASSERT_NE(::dlopen(SPILLWAY_C10_CUDA_NAME, RTLD_NOW), nullptr) << ::dlerror();
  EXPECT_THROW(start("cuda=64MiB,cpu=64MiB"), std::runtime_error);
  EXPECT_THROW(spillway::statistics(), std::runtime_error);
  EXPECT_EQ(at::ones({1 << 20}).sum().item<float>(), 1 << 20);
#else
  GTEST_SKIP() << "no headers of CUDA";
#endif
}

class OlderThreads : public CoreCase {};

TEST_F(OlderThreads, AreSeenFromTheirFirstAllocationOn) {
  Worker worker;
  start("64MiB");
  at::Tensor tensor;
  worker.run([&] { tensor = at::ones({1 << 20}); });
  const std::uint64_t before = spillway::statistics().ops;
  worker.run([&] {
    for (int i = 0; i < 10; ++i) tensor.mul_(2);
  });
  EXPECT_THAT(spillway::statistics().ops - before, Ge(10U));
}

/// While it lives, the process gets no more memory from the kernel.
class NoMoreMemory {
 public:
  NoMoreMemory() {
    ::getrlimit(RLIMIT_AS, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;  // Less than it has.
    ::setrlimit(RLIMIT_AS, &none);
  }
  ~NoMoreMemory() { ::setrlimit(RLIMIT_AS, &before_); }
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;

 private:
  rlimit before_{};
};

class SecondRuns : public CoreCase {
 protected:
  /// The statistics of a process that does `work`.
  std::string statistics_of(const std::function<void()>& work) {
    const auto run = [&] {
      work();
      std::exit(0);
    };
    EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
    std::ifstream file(stats_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string stats_ = directory_.path() + "/run.json";
};

// The copy without the lazy conjugation belonged to the stack alone and ended with the kernel; the
// comparison that followed read it.
TEST_F(SecondRuns, HoldArgumentsThatNobodyElseDoes) {
  start("256MiB", {{"verify", "on"}});
  const at::Tensor x = at::randn({1 << 18}, at::kComplexFloat);
  ::testing::internal::CaptureStderr();
  const at::Tensor product = x.conj() * x;
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(at::equal(product, at::conj_physical(x) * x));
}

// Its kind counted as being compared for ever.
TEST_F(SecondRuns, ComeWithTheNextCallWhereTheFirstHadNoMemory) {
  const std::string told = statistics_of([this] {
    start("256MiB", {{"verify", "on"}, {"stats", stats_}});
    at::Tensor x = at::ones({16 << 20});
    try {
      const NoMoreMemory no_copy_of_what_is_written;
      x.neg_();
      std::exit(3);
    } catch (const std::bad_alloc&) {
      x.neg_();
    }
  });
  EXPECT_THAT(told, HasSubstr("\"aten::neg_\": 1"));
}

// What cannot be recorded was tried at every call.
TEST_F(SecondRuns, AreTriedOnceWhereACallCannotBeRecorded) {
  start("256MiB", {{"verify", "on"}, {"log-level", "debug"}});
  const at::Tensor small = at::ones({16});
  ::testing::internal::CaptureStderr();
  at::Tensor sum = small;
  for (int i = 0; i < 5; ++i) sum = at::neg(sum);
  const std::string told = ::testing::internal::GetCapturedStderr();
  std::size_t tries = 0;
  for (auto at = told.find("aten::neg cannot run again"); at != std::string::npos;
       at = told.find("aten::neg cannot run again", at + 1))
    ++tries;
  EXPECT_EQ(tries, 1U) << told;
}

// They seemed to be compared.
TEST_F(SecondRuns, AreNotPromisedByWayOfKeysThatCannotRecord) {
  const std::string told = statistics_of([this] {
    start("64MiB", {{"verify", "on"}, {"stats", stats_}, {"dispatch-key", "DeferredInit"}});
    at::ones({1 << 20}).neg_();
  });
  EXPECT_THAT(told, HasSubstr("\"recompute\": false"));
  EXPECT_THAT(told, HasSubstr("\"verified_kinds\": 0"));
  ::testing::internal::CaptureStderr();
  start("64MiB", {{"verify", "on"}, {"dispatch-key", "record-function"}});
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("operators are seen by way of record-function, which cannot run them again: "
                "tensors are moved only, and no second run is compared"));
}

class LastWords : public CoreCase {};

// The first file that could not be written was the last one.
TEST_F(LastWords, AreWrittenEachByItself) {
  const std::string trace = directory_.path() + "/trace.json";
  const std::string folder = directory_.path() + "/gone";
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  const auto run = [&] {
    start("64MiB", {{"stats", folder + "/run.json"}, {"trace", trace}});
    ::rmdir(folder.c_str());
    at::ones({1 << 20}).neg_();
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "/gone/run.json");
  EXPECT_TRUE(std::ifstream(trace).good());
}

class ForkedChildren : public CoreCase {
 protected:
  /// What a child that does `work` writes to stderr.
  static std::string said_by_child(const std::function<void()>& work) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(ends[1], STDERR_FILENO);
      work();
      ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    char byte = 0;
    while (::read(ends[0], &byte, 1) == 1) said += byte;
    ::close(ends[0]);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return said;
  }
};

/// Programs that are started by a list of words got them with what is reserved added.
TEST_F(ForkedChildren, HandOnTheLimitsThatTheTrainerSetToThePrograms) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizer reserves more than the limit";
  start("40MiB");
  constexpr rlim_t kGib = rlim_t{1} << 30;
  const rlimit limit{64 * kGib, 64 * kGib};
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(9);
    ::execl("/bin/sh", "sh", "-c", "test $(ulimit -S -v) = 67108864", nullptr);
    ::_exit(10);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(ForkedChildren, AreToldOfOnceTheirTensorsGrowOutOfProportion) {
  start("64MiB");
  const std::string said = said_by_child([] {
    for (int i = 0; i < 20; ++i) at::empty({1 << 20});
    std::vector<at::Tensor> kept;
    for (int i = 0; i < 6; ++i) kept.push_back(at::empty({5 << 18}));
  });
  EXPECT_THAT(said, HasSubstr("[spillway] warning: process "));
  EXPECT_THAT(said, HasSubstr("was made by fork(2) and holds 20 MiB in tensors of its own"));
  EXPECT_THAT(said, HasSubstr("`spillway run` in the child"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_F(ForkedChildren, AreNotToldOfForAFewBatches) {
  start("64MiB");
  EXPECT_EQ(said_by_child([] {
              for (int i = 0; i < 100; ++i) at::empty({3 << 20});
            }),
            "");
}

/// Other libraries may have taken keys; each case is a process of its own.
class DispatchKeys : public CoreCase {
 protected:
  static torch::Library library(const char* name_space, const char* key) {
    return {torch::Library::IMPL, name_space, c10::parseDispatchKey(key), __FILE__, __LINE__};
  }
  void occupy(const char* key) {
    others_.push_back(library("_", key));
    others_.back().fallback(torch::CppFunction::makeFallthrough());
  }
  void add_kernel(const char* key) {
    others_.push_back(library("aten", key));
    others_.back().impl("frobenius_norm.out", torch::CppFunction::makeFallthrough());
  }

  static bool has_fallback(const char* key) {
    return c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(
        c10::parseDispatchKey(key));
  }
  static void expect_operators_are_seen() {
    const std::uint64_t before = spillway::statistics().ops;
    at::Tensor tensor = at::ones({1 << 20});
    for (int i = 0; i < 10; ++i) tensor.mul_(2);
    EXPECT_THAT(spillway::statistics().ops - before, Ge(10U));
  }

  std::vector<torch::Library> others_;
};

TEST_F(DispatchKeys, AreLeftAloneWhenTheFirstIsFree) {
  start("64MiB");
  EXPECT_TRUE(has_fallback("Fake"));
  for (const char* key :
       {"TESTING_ONLY_GenericMode", "DeferredInit", "TESTING_ONLY_GenericWrapper"})
    EXPECT_FALSE(has_fallback(key)) << key;
  expect_operators_are_seen();
}

TEST_F(DispatchKeys, ThatHaveAFallbackOrKernelsArePassedOver) {
  occupy("Fake");
  add_kernel("TESTING_ONLY_GenericMode");
  start("64MiB");
  EXPECT_FALSE(has_fallback("TESTING_ONLY_GenericMode"));
  EXPECT_TRUE(has_fallback("DeferredInit"));
  EXPECT_FALSE(has_fallback("TESTING_ONLY_GenericWrapper"));
  expect_operators_are_seen();
}

TEST_F(DispatchKeys, ThatAreAllTakenLeaveAnObserver) {
  occupy("Fake");
  add_kernel("TESTING_ONLY_GenericMode");
  occupy("DeferredInit");
  occupy("TESTING_ONLY_GenericWrapper");
  ::testing::internal::CaptureStderr();
  start("64MiB");
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("no dispatch key is free, observing operators instead"));
  EXPECT_THAT(told, HasSubstr("Fake: has a fallback already"));
  EXPECT_THAT(told, HasSubstr("TESTING_ONLY_GenericMode: has kernels of its own (1)"));
  expect_operators_are_seen();
}

/// A step on so many rows; returns what tells one result from another.
double step_on_rows(std::vector<at::Tensor>& weights, std::int64_t rows) {
  at::Tensor h = at::randn({rows, 512});
  for (at::Tensor& weight : weights) {
    const at::Tensor before = h.matmul(weight);
    const at::Tensor after = at::silu(before);
    h = at::silu_backward(after, before).matmul(weight.t());
    weight.sub_(h.mean() * 1e-3);
  }
  return h.pow(2).mean().item<double>();
}

/// Steps that fit, one that is a little larger than the budget, and again steps that fit.
std::vector<double> train_on_rows() {
  at::manual_seed(7);
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 3; ++i) weights.push_back(at::randn({512, 1024}) * 0.03);
  std::vector<double> results;
  for (int step = 0; step < 16; ++step)
    results.push_back(step_on_rows(weights, step == 6 ? 2048 : 1024));
  return results;
}

class OversizeStep : public CoreCase, public ::testing::WithParamInterface<const char*> {};

/// The larger step came through, and the run was ended two steps later.
TEST_P(OversizeStep, IsPagedThroughAndTheTrainingGoesOn) {
  at::set_num_threads(1);
  const std::vector<double> plain = train_on_rows();
  start("20MiB", {{"mapper", GetParam()}});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(train_on_rows(), plain);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("warning: aten::silu_backward(float[2048, 1024], float[2048, 1024]) "
                              "does not fit into the budget of 20.0 MiB: it needs 24.0 MiB at "
                              "once"));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
}

INSTANTIATE_TEST_SUITE_P(Mappers, OversizeStep, ::testing::Values("auto", "signal", "copy"),
                         [](const auto& made_for) { return std::string(made_for.param); });

class OutOfMemory : public CoreCase {};

/// Programs that halve their batch catch c10::Error, and died of an exception that was none.
TEST_F(OutOfMemory, IsWhatProgramsCatchForIt) {
  start("32MiB");
  std::int64_t rows = 1 << 20;
  std::vector<std::string> refused;
  double sum = 0;
  while (sum == 0) {
    try {
      const at::Tensor batch = at::empty({rows, 64}).fill_(1);
      sum = (batch * 2).sum().item<double>();
    } catch (const c10::OutOfMemoryError& error) {
      refused.emplace_back(error.what());
      rows /= 2;
    }
  }
  EXPECT_EQ(sum, 128.0 * static_cast<double>(rows));
  ASSERT_GE(refused.size(), 2U);
  EXPECT_THAT(refused.front(), HasSubstr("Spillway: aten::fill_")) << "before an operator";
  EXPECT_THAT(refused.back(), HasSubstr("Spillway: aten::mul")) << "inside of one";
  for (const std::string& words : refused) {
    EXPECT_THAT(words, HasSubstr("smallest budget: "));
    EXPECT_EQ(std::count(words.begin(), words.end(), '\n'), 0) << words;
  }
}

class ObservedOperators : public CoreCase {};

TEST_F(ObservedOperators, EndTheTrainingWhenTheyDoNotFit) {
  start("16MiB", {{"dispatch-key", "record-function"}});
  const at::Tensor large = at::empty({20 << 20});
  large.fill_(1);  // Before anything has left, nothing is brought in.
  EXPECT_NO_THROW(large.fill_(2)) << "LibTorch drops what its observers throw";
  try {
    at::empty({1 << 20});
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("aten::fill_"));
    EXPECT_THAT(error.what(), HasSubstr("smallest budget: "));
  }
  EXPECT_NO_THROW(at::empty({1 << 20}));
}

}  // namespace
}  // namespace spillway::torch_binding
