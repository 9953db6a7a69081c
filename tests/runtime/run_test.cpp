// A run from its settings to the files that it leaves, without LibTorch.
#include "spillway/runtime/run.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/file_text.h"
#include "support/golden_part.h"
#include "support/named_op.h"
#include "support/temporary_directory.h"
#include "test_surroundings.h"

namespace spillway::runtime {
namespace {

using memory::kPageBytes;
using testing::ElementsAre;

class RunCase : public ::testing::Test {
 protected:
  RunCase() {
    set("quiet", "on");
    set("progress", "off");
    set("budget", "64MiB");
    set("nvme", directory_.path());
  }

  void set(const std::string& key, const std::string& value) {
    assign_setting(settings_, key, value, "test");
  }

  /// What refuses the settings.
  std::string refusal() {
    return error_text([&] { build_runtime(settings_, surroundings_, clock_); });
  }

  std::unique_ptr<runtime::Run> start() {
    auto run = std::make_unique<runtime::Run>(settings_, surroundings_, clock_);
    run->trainer_facts = [this] { return facts_; };
    return run;
  }

  /// Fills more pages than the budget has, as operators do.
  static void work(Runtime& runtime, std::size_t storages) {
    const NamedOp text("aten::fill");  // Until the operators have ended.
    std::vector<void*> made;
    for (std::size_t i = 0; i < storages; ++i) {
      runtime.announce_op();
      runtime.begin_op(i + 1, {}, text);
      auto* const memory = static_cast<std::byte*>(runtime.allocate(4 * kPageBytes));
      for (std::size_t page = 0; page < 4; ++page) memory[page * kPageBytes] = std::byte{1};
      runtime.end_op();
      made.push_back(memory);
    }
    for (void* memory : made) runtime.deallocate(memory);
  }

  TemporaryDirectory directory_;
  Settings settings_;
  RunSurroundings surroundings_ = surroundings_for_tests(4_GiB);
  TrainerFacts facts_;
  SteadyClock clock_;
};

TEST_F(RunCase, IsBuiltAsTheSettingsSay) {
  set("store", "posix");
  set("trace", directory_.path() + "/trace.json");
  set("profile-out", directory_.path() + "/step.profile.json");
  const RunParts parts = build_runtime(settings_, surroundings_, clock_);
  EXPECT_EQ(parts.budget.budget, 64_MiB);
  EXPECT_EQ(parts.runtime->budget(), 64_MiB);
  EXPECT_EQ(parts.store_name.substr(0, parts.store_name.find(' ')), "posix,");
  EXPECT_THAT(parts.directories, ElementsAre(directory_.path()));
  EXPECT_NE(parts.trace, nullptr);
  EXPECT_NE(parts.recording, nullptr);
  EXPECT_TRUE(parts.runtime->records());
  EXPECT_TRUE(parts.runtime->traces());
}

TEST_F(RunCase, MakesNeitherTraceNorProfileUnasked) {
  const RunParts parts = build_runtime(settings_, surroundings_, clock_);
  EXPECT_EQ(parts.trace, nullptr);
  EXPECT_EQ(parts.recording, nullptr);
}

TEST_F(RunCase, TakesItsBudgetFromTheMachineItIsTold) {
  set("budget", "auto");
  surroundings_.ranks_here = 2;
  EXPECT_EQ(build_runtime(settings_, surroundings_, clock_).budget.budget, 2_GiB - 512_MiB);
}

TEST_F(RunCase, ReservesTheAddressesThatALimitOfTheProcessLeaves) {
#ifndef __SANITIZE_THREAD__
  EXPECT_EQ(build_runtime(settings_, surroundings_, clock_).budget.arena, 1_TiB);
#endif
  surroundings_.machine.limits.address_space_bytes = (5_GiB).count();
  surroundings_.machine.use.address_space_bytes = (1_GiB).count();
  const RunParts parts = build_runtime(settings_, surroundings_, clock_);
  EXPECT_LT(parts.budget.arena, 2_GiB);
  GoldenPart golden;
  golden.add(parts.budget.warnings);
  // The engine has no more than that.
  int storages = 0;
  golden.add(error_text<UnsupportedError>([&] {
    for (; storages < 100; ++storages) parts.runtime->engine().allocate_unfilled(60_MiB);
  }));
  EXPECT_LT(storages, 2048 / 60);
}

TEST_F(RunCase, IsRefusedWithEveryReasonWhereNoMapperWorks) {
  surroundings_.mappers.probe = [](memory::MapperKind kind) {
    const bool is_copy = kind == memory::MapperKind::kCopy;
    return memory::MapperProbe{kind, false,
                               is_copy ? "mmap is forbidden" : "the kernel is too old"};
  };
  GoldenPart().add(refusal());
}

TEST_F(RunCase, TakesTheBestMapperThatWorks) {
  surroundings_.mappers.probe = [](memory::MapperKind kind) {
    return memory::MapperProbe{kind, kind == memory::MapperKind::kCopy, "no"};
  };
  EXPECT_EQ(build_runtime(settings_, surroundings_, clock_).mapper, memory::MapperKind::kCopy);
}

TEST_F(RunCase, RefusesAProfileWithoutLearning) {
  set("profile-out", directory_.path() + "/step.profile.json");
  set("prefetch", "off");
  GoldenPart().add(refusal());
}

TEST_F(RunCase, LeavesStatisticsOfWhatWasDone) {
  set("stats", directory_.path() + "/run.json");
  facts_.libtorch_version = "2.11.0";
  facts_.dispatch_key = "Fake";
  facts_.recorded_peak = 3_MiB;
  const auto run = start();
  work(run->runtime(), 16);
  run->finish(Runtime::Ending::kByItself);
  const auto json = nlohmann::json::parse(file_text(directory_.path() + "/run.json"));
  EXPECT_EQ(json.at("libtorch_version"), "2.11.0");
  EXPECT_EQ(json.at("dispatch_key"), "Fake");
  EXPECT_EQ(json.at("recorded_peak_bytes"), (3_MiB).count());
  EXPECT_EQ(json.at("budget_bytes"), (64_MiB).count());
  EXPECT_EQ(json.at("ops"), 16);
  EXPECT_EQ(json.at("needed_bytes"), (128_MiB).count());
  EXPECT_LE(json.at("peak_bytes").get<std::uint64_t>(), (64_MiB).count());
  EXPECT_GE(json.at("spilled_bytes").get<std::uint64_t>(), (64_MiB).count());
  EXPECT_EQ(json.at("disk_written_bytes"), json.at("spilled_bytes"));
}

TEST_F(RunCase, CountsNoWearForAStoreInMemory) {
  set("store", "ram");
  const auto run = start();
  work(run->runtime(), 16);
  const RunStatistics statistics = run->statistics();
  EXPECT_GT(statistics.memory.spilled, 0_B);
  EXPECT_EQ(statistics.disk_written, 0_B);
  EXPECT_EQ(statistics.endurance, 0_B);
}

TEST_F(RunCase, FinishesOnce) {
  set("stats", directory_.path() + "/run.json");
  const auto run = start();
  run->finish(Runtime::Ending::kByItself);
  std::filesystem::remove(directory_.path() + "/run.json");
  run->finish(Runtime::Ending::kBySignal);
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/run.json"));
}

/// It waits for the end that --steps promises, and nothing else would tell it.
TEST_F(RunCase, WarnsOnceWhereNoStepIsRecordedThatIsToEndTheProgram) {
  set("quiet", "off");
  set("profile-out", directory_.path() + "/step.profile.json");
  set("profile-steps", "100");  // More than come here: they would end this process.
  for (const bool has_large : {false, true}) {
    const auto run = start();
    testing::internal::CaptureStderr();
    for (int step = 0; step < 8; ++step) {
      if (has_large)
        work(run->runtime(), 1);
      else
        run->runtime().deallocate(run->runtime().allocate(64));
      run->runtime().step_updated();
      run->runtime().step_boundary();
    }
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                has_large ? std::string()
                          : "[spillway] warning: 4 steps have ended, and no operator used a tensor "
                            "of 1.00 MiB or more: none of them is recorded, and --steps ends the "
                            "program at no such step (end it, and name a smaller --min-storage)\n");
  }
}

/// An error has told what the user has to change.
TEST_F(RunCase, SaysNoMoreWhereADeviceWasRefusedBeforeTheFirstStep) {
  for (const bool is_refused : {false, true}) {
    set("quiet", "off");
    set("stats", directory_.path() + "/run.json");
    const auto run = start();
    if (is_refused) run->refuse_device();
    testing::internal::CaptureStderr();
    run->finish(Runtime::Ending::kByItself);
    EXPECT_EQ(testing::internal::GetCapturedStderr().empty(), is_refused);
    EXPECT_TRUE(std::filesystem::remove(directory_.path() + "/run.json"));
  }
}

TEST_F(RunCase, WritesTheOtherFilesWhereOneCannotBeWritten) {
  set("stats", "/no/such/folder/run.json");
  set("trace", directory_.path() + "/trace.json");
  const auto run = start();
  testing::internal::CaptureStderr();
  run->finish(Runtime::Ending::kByItself);
  const std::string told = testing::internal::GetCapturedStderr();
  const std::size_t error = told.find("[spillway] error");
  ASSERT_NE(error, std::string::npos) << told;
  // In spite of --quiet, the summary: else nobody would have its figures.
  EXPECT_LT(told.find("[spillway] budget "), error) << told;
  GoldenPart().add(told.substr(error));
  EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/trace.json"));
}

}  // namespace
}  // namespace spillway::runtime
