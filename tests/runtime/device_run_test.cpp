// A device with memory of its own beside the host: from the settings to its runtime, and to its
// end.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <thread>

#include "spillway/base/error.h"
#include "spillway/planner/step_bound.h"
#include "spillway/runtime/run.h"
#include "support/chain_profile.h"
#include "support/error_text.h"
#include "support/file_text.h"
#include "support/golden_part.h"
#include "support/named_op.h"
#include "support/running_op.h"
#include "support/shadow_pages.h"
#include "support/temporary_directory.h"
#include "test_surroundings.h"

namespace spillway::runtime {
namespace {

using device::DeviceId;
using device::DeviceKind;
using device::ShadowDevice;
using memory::ShadowPages;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr DeviceId kFirst{DeviceKind::kCuda, 0};
constexpr DeviceId kSecond{DeviceKind::kCuda, 1};
constexpr Bytes kTensor = 1_MiB;

/// A trainer that does not wait for its device: each call is an operator that gives it work.
class Trainer {
 public:
  explicit Trainer(ShadowDevice& device) : device_(device), queue_(device.make_queue("trainer")) {}

  std::function<device::Event()> given_so_far() {
    return [this] { return queue_->record(); };
  }
  std::function<device::Event()> moment() {
    return [this] {
      ++moments;
      return queue_->record(device::Timing::kKept);
    };
  }
  void use(Runtime& runtime) { runtime_ = &runtime; }

  /// A new tensor, full of that byte.
  std::byte* fill(std::uint8_t value) {
    RunningOp op(*runtime_, 1, {}, text_);
    auto* const tensor = static_cast<std::byte*>(runtime_->allocate(kTensor.count()));
    const auto bytes = std::make_shared<std::vector<std::byte>>(kTensor.count(), std::byte{value});
    move(tensor, *bytes, true);
    queue_->run([bytes] { return device::Outcome{}; });
    op.results.push_back(runtime_->find(tensor).storage);
    return tensor;
  }

  std::vector<std::byte> read(std::byte* tensor) {
    std::vector<std::byte> bytes(kTensor.count());
    device::Event done;
    {
      const RunningOp op(*runtime_, 2, std::array{runtime_->find(tensor, kTensor)}, text_);
      move(tensor, bytes, false);
      done = queue_->record();
    }
    EXPECT_EQ(done.wait().error, "");
    return bytes;
  }

  std::uint32_t moments = 0;  ///< That were asked for.

 private:
  /// Page by page, as beneath each lies a piece of its own.
  void move(std::byte* tensor, std::vector<std::byte>& bytes, bool to_device) {
    for (Bytes at; at < kTensor; at += ShadowPages::kSize) {
      const device::DeviceSpan there{device_.id(), tensor + at.count(), ShadowPages::kSize};
      const auto here = device::host_span(bytes.data() + at.count(), ShadowPages::kSize);
      queue_->copy(to_device ? there : here, to_device ? here : there);
    }
  }

  Runtime* runtime_ = nullptr;
  ShadowDevice& device_;
  std::unique_ptr<device::Queue> queue_;
  const NamedOp text_{"aten::fill"};
};

class DeviceRunCase : public ::testing::Test {
 protected:
  DeviceRunCase() {
    set("quiet", "on");
    set("progress", "off");
    set("budget", "8MiB");
    set("min-storage", "1MiB");
    set("nvme", "ram:4MiB," + directory_.path());
    set("store", "posix");
  }

  void set(const std::string& key, const std::string& value) {
    assign_setting(settings_, key, value, "test");
  }

  /// A card of 64 MiB, of which 40 MiB are free.
  std::shared_ptr<ShadowDevice> card(DeviceId id = kFirst) {
    return std::make_shared<ShadowDevice>(id, device::MemoryInfo{64_MiB, 40_MiB});
  }

  static DeviceSurroundings opened(const std::shared_ptr<ShadowDevice>& card) {
    return {
        card->id(), "Shadow 64", card->memory().total, card, std::make_unique<ShadowPages>(card),
        {}};
  }

  RunParts build(const std::shared_ptr<ShadowDevice>& card, Trainer* trainer = nullptr) {
    DeviceSurroundings device = opened(card);
    if (trainer != nullptr) {
      device.given_so_far = trainer->given_so_far();
      device.moment = trainer->moment();
    }
    RunParts parts = build_device_runtime(settings_, surroundings_, clock_, std::move(device));
    if (trainer != nullptr) trainer->use(*parts.runtime);
    return parts;
  }

  std::string refusal() {
    return error_text([&] { build(card()); });
  }

  std::unique_ptr<runtime::Run> start() {
    auto run = std::make_unique<runtime::Run>(settings_, surroundings_, clock_);
    run->trainer_facts = [] { return TrainerFacts{}; };
    return run;
  }

  TemporaryDirectory directory_;
  Settings settings_;
  RunSurroundings surroundings_ = surroundings_for_tests(1_GiB);
  SteadyClock clock_;
};

TEST_F(DeviceRunCase, IsBuiltAsTheSettingsSay) {
  const RunParts parts = build(card());
  EXPECT_EQ(parts.runtime->budget(), 8_MiB);
  EXPECT_EQ(parts.budget.origin, "given");
  EXPECT_EQ(parts.host_memory, 4_MiB);
  EXPECT_EQ(parts.runtime->engine().page_size(), ShadowPages::kSize);
  GoldenPart golden;
  golden.mask(std::regex("posix, .*"), "posix, DISK");
  golden.add(parts.store_name);
  EXPECT_THAT(parts.directories, ElementsAre(directory_.path()));
  EXPECT_THAT(parts.warnings, IsEmpty());
}

/// Eight tensors fit on the device, a page behind it, and the disk takes the rest.
TEST_F(DeviceRunCase, KeepsEveryByteUnderItsBudget) {
  const auto device = card();
  Trainer trainer(*device);
  const RunParts parts = build(device, &trainer);
  std::vector<std::byte*> tensors;
  for (std::uint8_t i = 0; i < 20; ++i) tensors.push_back(trainer.fill(i));
  for (std::uint8_t i = 0; i < 20; ++i) {
    const std::vector<std::byte> bytes = trainer.read(tensors[i]);
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{i}), kTensor.count()) << int{i};
  }
  const swap::SwapStatistics counted = parts.runtime->engine().statistics();
  EXPECT_LE(counted.counted_peak, 8_MiB);
  EXPECT_EQ(counted.live_peak, 20 * kTensor);
  EXPECT_GT(counted.store.host.written, 0_B);
  EXPECT_GT(counted.store.written_to_disks(), 0_B);
  EXPECT_GE(trainer.moments, 40U) << "the first step is measured, its operators on the device";
  for (std::byte* tensor : tensors) parts.runtime->deallocate(tensor);
}

/// A store in memory has no disks to lie before, and moves memory of the host alone.
TEST_F(DeviceRunCase, HasAStoreInMemoryBehindHostMemory) {
  set("nvme", directory_.path());
  set("store", "ram");
  const auto device = card();
  Trainer trainer(*device);
  const RunParts parts = build(device, &trainer);
  GoldenPart().add(parts.store_name);
  std::vector<std::byte*> tensors;
  for (std::uint8_t i = 0; i < 20; ++i) tensors.push_back(trainer.fill(i));
  EXPECT_EQ(trainer.read(tensors[0])[0], std::byte{0});
  EXPECT_EQ(trainer.read(tensors[7])[99], std::byte{7});
  for (std::byte* tensor : tensors) parts.runtime->deallocate(tensor);
}

TEST_F(DeviceRunCase, TakesItsBudgetFromWhatIsFreeOnTheCard) {
  set("budget", "auto");
  EXPECT_EQ(build(card()).budget.budget, 40_MiB - 8_MiB);
}

TEST_F(DeviceRunCase, HasABudgetOfItsOwn) {
  set("budget", "cuda=6MiB,cpu=16MiB,cuda:1=7MiB");
  const auto run = start();
  EXPECT_EQ(run->runtime().budget(), 16_MiB);
  EXPECT_EQ(run->add_device(opened(card())).budget(), 6_MiB);
  EXPECT_EQ(run->add_device(opened(card(kSecond))).budget(), 7_MiB);
}

TEST_F(DeviceRunCase, WarnsOfTheBudgetOfADeviceThatWasNotUsed) {
  set("budget", "cuda:0=6MiB,cpu=16MiB,cuda:1=7MiB");
  GoldenPart golden;
  for (const std::size_t ranks : {1, 2}) {
    surroundings_.ranks_here = ranks;
    const auto run = start();
    run->add_device(opened(card()));
    testing::internal::CaptureStderr();
    run->finish(Runtime::Ending::kByItself);
    golden.add(testing::internal::GetCapturedStderr());
  }
}

TEST_F(DeviceRunCase, TellsWhyGpusWereNotUsedWhereTheyHaveABudget) {
  set("budget", "cuda=6MiB,cpu=16MiB");
  GoldenPart golden;
  // Without a tensor it was perhaps the launcher of what has used them.
  for (const char* why : {"no driver is loaded", ""}) {
    const auto run = start();
    run->why_no_gpu = [why] { return NoGpu{why}; };
    testing::internal::CaptureStderr();
    run->finish(Runtime::Ending::kByItself);
    golden.add(testing::internal::GetCapturedStderr());
  }
}

TEST_F(DeviceRunCase, TellsRanksWithoutGpusHowToShareOne) {
  set("split", "on");
  surroundings_.ranks_here = 2;
  GoldenPart golden;
  const auto tell_at_end = [&](const char* visible, Runtime::Ending ending,
                               const NoGpu& none = {"it is not there", /*names_none=*/true}) {
    const auto run = start();
    run->why_no_gpu = [none] { return none; };
    ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    testing::internal::CaptureStderr();
    run->finish(ending);
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    golden.add(testing::internal::GetCapturedStderr());
  };
  tell_at_end("1", Runtime::Ending::kBySignal);
  tell_at_end("1", Runtime::Ending::kBySignal, {"its LibTorch is for the CPU alone"});
  tell_at_end("0", Runtime::Ending::kBySignal);
  tell_at_end("1", Runtime::Ending::kByItself);
}

TEST_F(DeviceRunCase, TellsThatHostMemoryIsNotPinned) {
  const auto device = card();
  device->why_not_pinned = "the limit RLIMIT_MEMLOCK is 64.0 KiB";
  const RunParts parts = build(device);
  GoldenPart golden;
  golden.mask(std::regex("posix, .*"), "posix, DISK");
  golden.add(parts.warnings);
  golden.add(parts.store_name);
}

TEST_F(DeviceRunCase, IsRefusedWithTheReasonAndLeavesNothingBehind) {
  set("nvme", "ram:200MiB," + directory_.path());
  surroundings_.pinned = 900_MiB;
  GoldenPart().add(refusal());
  const auto run = start();
  EXPECT_THROW(run->add_device(opened(card())), ConfigError);
  EXPECT_THROW(run->add_device(opened(card())), ConfigError);
}

TEST_F(DeviceRunCase, IsRefusedForMoreDevicesThanCanBeTold) {
  GoldenPart golden;
  for (const std::uint16_t index : {15, 16})
    golden.add(error_text<UnsupportedError>([&] { build(card({DeviceKind::kCuda, index})); }));
}

/// The bytes that a lane of a device's process has moved, and -1 for a lane that is not there.
std::int64_t moved_in(const nlohmann::json& trace, int process, const std::string& lane) {
  int thread = -1;
  std::int64_t bytes = 0;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("pid") == process && event.at("ph") == "M" && event.at("name") == "thread_name" &&
        event.at("args").at("name") == lane)
      thread = event.at("tid");
  if (thread < 0) return -1;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("pid") == process && event.at("ph") == "X" && event.at("tid") == thread)
      bytes += event.at("args").at("bytes").get<std::int64_t>();
  return bytes;
}

TEST_F(DeviceRunCase, WritesOneTraceOfAllDevices) {
  set("trace", directory_.path() + "/trace.json");
  set("stats", directory_.path() + "/run.json");
  const auto run = start();
  std::vector<std::shared_ptr<ShadowDevice>> cards{card(), card(kSecond)};
  std::vector<std::unique_ptr<Trainer>> trainers;
  std::vector<Runtime*> runtimes;
  for (const auto& each : cards) {
    trainers.push_back(std::make_unique<Trainer>(*each));
    DeviceSurroundings surroundings = opened(each);
    surroundings.given_so_far = trainers.back()->given_so_far();
    surroundings.moment = trainers.back()->moment();
    runtimes.push_back(&run->add_device(std::move(surroundings)));
    trainers.back()->use(*runtimes.back());
  }
  std::vector<std::byte*> tensors;
  for (std::uint8_t i = 0; i < 20; ++i) tensors.push_back(trainers[1]->fill(i));
  for (std::byte* tensor : tensors) trainers[1]->read(tensor);
  trainers[0]->fill(1);
  run->finish(Runtime::Ending::kByItself);
  const auto trace = nlohmann::json::parse(file_text(directory_.path() + "/trace.json"));
  GoldenPart golden;
  golden.mask(std::regex("measured: \\S+"), "measured: PROGRAM");
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("name") == "process_name")
      golden.add(event.at("pid").dump(), event.at("args").at("name"));
  EXPECT_EQ(moved_in(trace, 2, "write-out to disk"), 0) << "the lane of host memory is there";
  EXPECT_EQ(moved_in(trace, 4, "write-out"), 0);
  // Nothing moves any more but from host memory to the disk.
  const auto counted =
      nlohmann::json::parse(file_text(directory_.path() + "/run.json")).at("devices").at(1);
  EXPECT_GT(counted.at("fetched_bytes"), 0);
  EXPECT_EQ(moved_in(trace, 6, "write-out"), counted.at("spilled_bytes"));
  EXPECT_EQ(moved_in(trace, 6, "read-in"), counted.at("fetched_bytes"));
  EXPECT_GT(counted.at("disk_written_bytes"), 0);
  EXPECT_GE(moved_in(trace, 6, "write-out to disk"), counted.at("disk_written_bytes"));
  EXPECT_EQ(moved_in(trace, 6, "read-in from disk"),
            counted.at("fetched_bytes").get<std::int64_t>() -
                counted.at("host_read_bytes").get<std::int64_t>());
  for (std::byte* tensor : tensors) runtimes[1]->deallocate(tensor);
}

/// A plan of a chain for that device, of pages of that size, in a file.
std::string plan_file(const std::string& folder, const std::string& device, Bytes page_size) {
  profile::StepProfile profile = chain_profile();
  profile.origin.device = device;
  const planner::SwapLimits limits{.budget_pages = 44, .page_size = page_size, .rates = {}};
  const std::string path = folder + "/net.plan.json";
  std::ofstream(path) << to_text(describe_plan(planner::plan_with_replays(profile.tape, {}, limits),
                                               planner::bound_plan(profile.tape, limits), profile,
                                               limits, 6_MiB + profile.small_bytes));
  return path;
}

TEST_F(DeviceRunCase, FollowsThePlanThatIsForIt) {
  set("plan", plan_file(directory_.path(), "cuda:1", ShadowPages::kSize));
  EXPECT_NE(build(card(kSecond)).plan, nullptr);
  const RunParts first = build(card());
  EXPECT_EQ(first.plan, nullptr);
  GoldenPart golden;
  golden.add(first.warnings);
  const auto run = start();
  EXPECT_EQ(run->parts().plan, nullptr);
  testing::internal::CaptureStderr();
  run->add_device(opened(card()));
  run->finish(Runtime::Ending::kByItself);
  golden.add(testing::internal::GetCapturedStderr());
}

TEST_F(DeviceRunCase, RefusesAPlanOfOtherPagesOrMoreMemory) {
  set("plan", plan_file(directory_.path(), "cuda:0", 2 * ShadowPages::kSize));
  GoldenPart golden;
  golden.add("other pages", refusal());
  set("plan", plan_file(directory_.path(), "cuda:0", ShadowPages::kSize));
  golden.add("its own", refusal());
  set("budget", "4MiB");
  golden.add("more memory", refusal());
}

/// `spillway plan` rounds 6.10 MiB up to 7MiB in what it says of a run.
TEST_F(DeviceRunCase, WarnsOfMemoryThatAPlanLeavesAloneFromAMebibyteOn) {
  set("plan", plan_file(directory_.path(), "cuda:0", ShadowPages::kSize));
  GoldenPart golden;
  for (const char* budget : {"8MiB", "7MiB"}) {
    set("budget", budget);
    golden.add(build(card()).warnings);
  }
}

TEST_F(DeviceRunCase, HasOneRuntimeForEachDevice) {
  const auto run = start();
  Runtime& first = run->add_device(opened(card()));
  Runtime& second = run->add_device(opened(card(kSecond)));
  EXPECT_NE(&first, &second);
  EXPECT_NE(&first, &run->runtime());
  EXPECT_EQ(&run->add_device(opened(card())), &first);
  EXPECT_EQ(&run->add_device(opened(card(kSecond))), &second);
}

TEST_F(DeviceRunCase, IsAddedOnceByManyThreads) {
  const auto run = start();
  std::array<Runtime*, 4> got{};
  std::vector<std::thread> threads;
  for (Runtime*& mine : got) threads.emplace_back([&] { mine = &run->add_device(opened(card())); });
  for (std::thread& thread : threads) thread.join();
  for (const Runtime* each : got) EXPECT_EQ(each, got[0]);
}

/// Half of what this process can use, at most as much as the budget; the next one of what is left.
/// Sixteen pages of that are for those on their way to the disks.
TEST_F(DeviceRunCase, SharesHostMemoryWithOtherDevices) {
  surroundings_.machine.memory.available = 20_MiB;
  set("nvme", directory_.path());
  const auto run = start();
  const auto host_memory_of = [&](DeviceId id) {
    return run->add_device(opened(card(id))).engine().statistics().store.host.capacity;
  };
  EXPECT_EQ(host_memory_of(kFirst), 8_MiB - 1_MiB);
  EXPECT_EQ(host_memory_of(kSecond), 6_MiB - 1_MiB);
}

TEST_F(DeviceRunCase, RepeatsNoWarningOfTheHost) {
  surroundings_.directories.warnings = {"plans start from guesses: no file"};
  testing::internal::CaptureStderr();
  const auto run = start();
  run->add_device(opened(card()));
  run->add_device(opened(card(kSecond)));
  const std::string told = testing::internal::GetCapturedStderr();
  const auto first = told.find("plans start from guesses");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(told.find("plans start from guesses", first + 1), std::string::npos) << told;
}

TEST_F(DeviceRunCase, IsReportedBesideTheHost) {
  set("stats", directory_.path() + "/run.json");
  set("budget", "cuda=6MiB,cpu=16MiB");
  set("quiet", "off");
  set("verify", "on");
  const auto device = card();
  Trainer trainer(*device);
  const auto run = start();
  DeviceSurroundings surroundings = opened(device);
  surroundings.given_so_far = trainer.given_so_far();
  trainer.use(run->add_device(std::move(surroundings)));
  std::vector<std::byte*> tensors;
  for (std::uint8_t i = 0; i < 12; ++i) tensors.push_back(trainer.fill(i));
  for (std::byte* tensor : tensors) run->add_device(opened(device)).deallocate(tensor);
  testing::internal::CaptureStderr();
  run->finish(Runtime::Ending::kByItself);
  const std::string summary = testing::internal::GetCapturedStderr();
  GoldenPart golden;
  golden.mask(std::regex("peak [0-9.]+ \\w+"), "peak SIZE");
  golden.mask(std::regex("took [0-9.]+ \\w+"), "took SIZE");
  std::istringstream lines(summary);
  for (std::string line; std::getline(lines, line);)
    if (std::regex_search(line, std::regex("^.spillway. (cuda:0|cpu|verified) "))) golden.add(line);
  const auto json = nlohmann::json::parse(file_text(directory_.path() + "/run.json"));
  EXPECT_EQ(json.at("needed_bytes"), 0);
  ASSERT_EQ(json.at("devices").size(), 1u);
  const auto& there = json.at("devices").at(0);
  EXPECT_EQ(there.at("device"), "cuda:0");
  EXPECT_EQ(there.at("ops"), 12);
  EXPECT_EQ(there.at("needed_bytes"), (12_MiB).count());
  EXPECT_LE(there.at("peak_bytes"), (6_MiB).count());
  EXPECT_GT(there.at("host_tier_peak_bytes"), 0);
  EXPECT_EQ(there.at("disk_written_bytes").get<std::uint64_t>(),
            there.at("spilled_bytes").get<std::uint64_t>() -
                there.at("host_written_bytes").get<std::uint64_t>() +
                there.at("demoted_bytes").get<std::uint64_t>());
}

TEST_F(DeviceRunCase, EndsTheRuntimesOfAllDevices) {
  const auto run = start();
  Runtime& runtime = run->add_device(opened(card()));
  runtime.step_updated();
  EXPECT_FALSE(runtime.report().has_whole_step);
  run->finish(Runtime::Ending::kByItself);
  EXPECT_TRUE(runtime.report().has_whole_step);
}

}  // namespace
}  // namespace spillway::runtime
