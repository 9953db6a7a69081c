#include "spillway/runtime/reporting/summary.h"

#include <gmock/gmock.h>

#include <functional>
#include <sstream>

#include "support/golden_folder.h"
#include "support/golden_text.h"

namespace spillway::runtime {
namespace {

using testing::ContainsRegex;

RunStatistics busy_run() {
  RunStatistics s;
  s.budget = 2_GiB;
  s.budget_origin = "given";
  s.memory.live_peak = 5_GiB;
  s.memory.counted_peak = 2040_MiB;
  s.peak_rss = 2400_MiB;
  s.steps = 10;
  s.has_whole_step = true;
  s.step_seconds_median = 3.91;
  s.run_seconds = 80.0;
  s.memory.fetch_wait = std::chrono::milliseconds(300);
  s.memory.room_wait = std::chrono::milliseconds(100);
  s.memory.fault_wait = std::chrono::microseconds(12600);
  s.memory.faults = 7;
  s.memory.store.busy_time = std::chrono::seconds(12);
  s.rates = profile::TransferRates{.write = TransferRate(1.5e9), .read = TransferRate(3e9)};
  s.memory.spilled = 30_GiB;
  s.disk_written = 60_GiB;
  s.endurance = Bytes(1'200'000'000'000'000);
  s.memory.fetched = 28_GiB;
  s.memory.left_clean = 3_GiB;
  s.ops = 17410;
  s.learned.deviations = 12;
  s.learned.shapes = 2;
  s.learned.plan_steps = 1;
  s.learned.planned_seconds = 3.75;
  s.learned.followed_seconds = 3.9;
  s.learned.bound_seconds = 3.5;
  s.learned.planned_peak = 2040_MiB;
  s.learned.followed_peak = 2041_MiB;
  s.memory.dropped = 12_GiB;
  s.replays = 410;
  s.unplanned_replays = 3;
  s.replay_seconds = 2.2;
  s.stalls = {{"aten::conv3d(float[1, 16])", 12, std::chrono::milliseconds(250),
               std::chrono::milliseconds(50)}};
  s.store = "io_uring, direct I/O, /scratch (ext4)";
  s.directories = {"/scratch", "/fast"};
  s.smallest_budget = 810_MiB;
  return s;
}

using Change = std::function<void(RunStatistics&)>;
using Changes = std::vector<std::pair<std::string, Change>>;

/// All of them apply, one after the other.
Change all(const std::vector<Change>& changes) {
  return [=](RunStatistics& s) {
    for (const Change& change : changes) change(s);
  };
}

void wait_for_inputs(RunStatistics& s) { s.memory.fetch_wait = std::chrono::seconds(20); }

void fit(RunStatistics& s) {
  s.memory.live_peak = 1_GiB;
  s.memory.spilled = s.memory.fetched = 0_B;
}

Change refuse(RefusalCause cause, Bytes smallest) {
  return [=](RunStatistics& s) {
    s.refusal = {cause, "it cannot go on"};
    s.smallest_budget = smallest;
  };
}

void stop_in_first_step(RunStatistics& s) { s.has_whole_step = false; }

void verify(RunStatistics& s) { s.verify = true; }

void limit_addresses(RunStatistics& s) {
  s.address_limit = "; the address-space limit is 8.00 GiB; lift it with `ulimit -v unlimited`";
}

const Changes kChangesOfARun = {
    {"held up", wait_for_inputs},
    {"held up, and the values are known",
     [](RunStatistics& s) {
       wait_for_inputs(s);
       s.learned.stalls = {
           {"activation 31", profile::StorageClass::kActivation, 64_MiB, "aten::relu", 12,
            std::chrono::milliseconds(250), std::chrono::milliseconds(50)},
           {"parameter 3",
            profile::StorageClass::kParameter,
            1_MiB,
            "",
            1,
            std::chrono::milliseconds(2),
            {}}};
     }},
    {"held up in several threads",
     [](RunStatistics& s) { s.memory.fetch_wait = std::chrono::seconds(100); }},
    {"held up while the step was learned", all({wait_for_inputs,
                                                [](RunStatistics& s) {
                                                  s.steps = 2;
                                                  s.learned.plan_steps = 0;
                                                }})},
    {"held up while the step was learned, with a plan", all({wait_for_inputs,
                                                             [](RunStatistics& s) {
                                                               s.steps = 2;
                                                               s.learned.plan_steps = 0;
                                                               s.given_plan.emplace().file = "p";
                                                             }})},
    {"held up by the disk",
     all({wait_for_inputs,
          [](RunStatistics& s) { s.memory.store.busy_time = std::chrono::seconds(76); }})},
    {"held up, and steps hardly repeat",
     all({wait_for_inputs, [](RunStatistics& s) { s.learned.deviations = s.ops / 2; }})},
    {"held up outside of operators",
     [](RunStatistics& s) { s.memory.fault_wait = std::chrono::seconds(40); }},
    {"held up without prefetching",
     all({wait_for_inputs, [](RunStatistics& s) { s.prefetch = false; }})},
    {"everything fitted", fit},
    {"everything fitted into less than a run takes",
     all({fit, [](RunStatistics& s) { s.memory.live_peak = 6_MiB; }})},
    {"everything fitted, and no step was seen", all({fit, [](RunStatistics& s) { s.steps = 0; }})},
    {"everything fitted until the first step stopped", all({fit, stop_in_first_step})},
    {"host memory before the disks",
     [](RunStatistics& s) {
       s.store = "host memory, 64.0 MiB, before io_uring, direct I/O, /scratch (ext4)";
       swap::HostTierReport& host = s.memory.store.host;
       host.capacity = 64_MiB;
       host.written = 40_GiB;
       host.read = 30_GiB;
       host.demoted = 5_GiB;
     }},
    {"stopped in the first step", all({stop_in_first_step, [](RunStatistics& s) { s.steps = 0; }})},
    {"refused by the budget", refuse(RefusalCause::kBudget, 4_GiB)},
    {"refused by the budget in the first step",
     all({refuse(RefusalCause::kBudget, 4_GiB), stop_in_first_step})},
    {"refused by a budget that was chosen in the first step",
     all({refuse(RefusalCause::kBudget, 4_GiB), stop_in_first_step,
          [](RunStatistics& s) { s.is_budget_auto = true; }})},
    // Rounded to the nearest figure, they named less than would do.
    {"budgets are rounded up",
     [](RunStatistics& s) {
       s.budget = 8_GiB;
       s.smallest_budget = 4100_MiB + 1_B;
     }},
    {"budgets are rounded up where one is refused", refuse(RefusalCause::kBudget, 4100_MiB + 1_B)},
    {"a limit of addresses", limit_addresses},
    {"a limit of addresses, refused by the budget",
     all({limit_addresses, refuse(RefusalCause::kBudget, 4_GiB)})},
    {"refused by addresses", all({limit_addresses, refuse(RefusalCause::kAddresses, 4_GiB)})},
    {"refused by addresses that a smaller budget leaves",
     all({limit_addresses, refuse(RefusalCause::kAddresses, 4_GiB),
          [](RunStatistics& s) {
            s.why_no_addresses = "; a budget of at most 1GiB leaves more";
          }})},
    {"refused by the store", refuse(RefusalCause::kStore, 4_GiB)},
    {"refused by the store, with room in memory", refuse(RefusalCause::kStore, 1_GiB)},
    {"refused by wrong bytes", refuse(RefusalCause::kUnreadable, 1_GiB)},
    {"refused by a second run", refuse(RefusalCause::kRecomputation, 1_GiB)},
    {"verified, and nothing was read", verify},
    {"verified, and nothing left memory",
     all({verify, [](RunStatistics& s) { s.memory.spilled = s.memory.left_clean = 0_B; }})},
    {"verified", all({verify, [](RunStatistics& s) { s.memory.store.checked = 12; }})},
    {"verified, with wrong bytes",
     all({verify,
          [](RunStatistics& s) {
            s.memory.store.checked = 12;
            s.memory.store.wrong = 1;
            s.verified = {.equal_kinds = 40, .differing_kinds = 2, .operators = {{"aten::mm", 40}}};
          }})},
    {"verified, with bytes that were wrong at first", all({verify,
                                                           [](RunStatistics& s) {
                                                             s.memory.store.checked = 12;
                                                             s.memory.store.recovered = 3;
                                                           }})},
    {"no disk was written", [](RunStatistics& s) { s.disk_written = 0_B; }},
    {"a few seconds",
     [](RunStatistics& s) {
       s.run_seconds = 20.0;
       s.steps = 2;
     }},
    {"another strategy", [](RunStatistics& s) { s.learned.strategy = "dtr"; }},
    {"no step went as planned",
     [](RunStatistics& s) {
       s.learned.followed_seconds = 0.0;
       s.learned.followed_peak = Bytes();
     }},
    {"what was learned was in use",
     [](RunStatistics& s) {
       s.learned.shapes = 0;
       s.not_reported = "what was learned, since it was in use";
     }},
    {"ended before it began", [](RunStatistics& s) { s = RunStatistics{}; }},
};

/// A run that trains on a GPU: the host has little to do.
RunStatistics device_run() {
  RunStatistics s;
  s.budget = 8_GiB;
  s.budget_origin = "auto";
  s.memory.live_peak = s.memory.counted_peak = 12_MiB;
  s.has_whole_step = true;
  s.run_seconds = 80.0;
  s.endurance = Bytes(1'200'000'000'000'000);
  RunStatistics there = busy_run();
  there.endurance = 0_B;
  there.device = "cuda:0";
  there.device_name = "Fast 16";
  there.device_memory = 16_GiB;
  there.memory.store.host.capacity = 4_GiB;
  there.memory.store.host.written = 30_GiB;
  there.memory.store.host.read = 28_GiB;
  there.memory.store.host.demoted = 2_GiB;
  there.memory.store.host.peak = 3_GiB;
  s.devices = {there};
  return s;
}

const Changes kChangesOfADeviceRun = {
    {"nothing moved",
     [](RunStatistics& s) {
       s.peak_rss = 1_GiB;
       s.devices[0].memory.spilled = s.devices[0].memory.fetched = 0_B;
     }},
    {"the host moved something, too", [](RunStatistics& s) { s.memory.spilled = 20_MiB; }},
    // All of them write to the same disks.
    {"the host wrote to disks, too", [](RunStatistics& s) { s.disk_written = 60_GiB; }},
    {"refused by the budget of a device",
     [](RunStatistics& s) { refuse(RefusalCause::kBudget, 3_GiB)(s.devices[0]); }},
    {"behind an error", [](RunStatistics& s) { s.has_told_errors = true; }},
    {"behind an error, refused by the budget of a device",
     [](RunStatistics& s) {
       s.has_told_errors = true;
       refuse(RefusalCause::kBudget, 3_GiB)(s.devices[0]);
     }},
};

RunStatistics run_with_given_plan() {
  RunStatistics s = busy_run();
  s.learned.strategy = "dtr";
  s.steps = 5;
  s.given_plan = {.file = "net.plan",
                  .budget = 2_GiB,
                  .rates = {.write = TransferRate(1.4e9), .read = TransferRate(3e9)},
                  .step_seconds = 3.5,
                  .steps = 4,
                  .all_steps = 5,
                  .misfit = {}};
  return s;
}

Change follow(std::uint64_t steps, const std::string& misfit) {
  return [=](RunStatistics& s) {
    s.given_plan->steps = steps;
    s.given_plan->misfit = misfit;
  };
}

const Changes kChangesOfARunWithAPlan = {
    {"one more step", [](RunStatistics& s) { s.steps = 6; }},
    {"made for another disk",
     [](RunStatistics& s) { s.given_plan->rates.read = TransferRate(100e9); }},
    {"made for a machine of twice the speed",
     [](RunStatistics& s) { s.learned.followed_seconds = 7.28; }},
    {"made for less memory", [](RunStatistics& s) { s.given_plan->budget = 1_GiB; }},
    {"made for less memory, and all would fit",
     [](RunStatistics& s) {
       s.given_plan->budget = 1_GiB;
       s.memory.live_peak = 1900_MiB;
       s.memory.spilled = s.memory.fetched = 0_B;
     }},
    {"made for less memory, which is enough",
     [](RunStatistics& s) {
       s.given_plan->budget = 1_GiB;
       s.memory.live_peak = 1_GiB;
     }},
    // It is the cause of nothing.
    {"made for less memory, and not followed",
     all({[](RunStatistics& s) { s.given_plan->budget = 1_GiB; }, follow(0, "")})},
    {"not followed", follow(0, "")},
    {"fits no step", follow(0, "net.plan: the plan is for another program")},
    {"no step has ended",
     all({follow(0, ""), [](RunStatistics& s) { s.given_plan->all_steps = 0; }})},
};

TEST(Summary, IsWhatItsFileShows) {
  GoldenText golden(golden_file("summary.txt"));
  const auto show = [&](const std::string& name, const RunStatistics& run, const Changes& others) {
    golden.add(name, summary(run));
    for (const auto& [heading, change] : others) {
      RunStatistics other = run;
      change(other);
      golden.add_difference(name + ": " + heading, summary(run), summary(other));
    }
  };
  show("a run", busy_run(), kChangesOfARun);
  show("a run on a GPU", device_run(), kChangesOfADeviceRun);
  show("a run with a plan", run_with_given_plan(), kChangesOfARunWithAPlan);
}

TEST(Summary, NamesTheRankWhereSeveralHaveOneTerminal) {
  std::string text = summary(device_run(), "1");
  for (std::size_t at = 0; (at = text.find("[spillway 1] ", at)) != std::string::npos;)
    text.erase(at + 9, 2);
  EXPECT_EQ(text, summary(device_run()));
}

TEST(Summary, KeepsTheWordsThatScriptsLookFor) {
  const std::string text = summary(busy_run());
  for (const char* word : {"peak", "needed", "budget"}) {
    EXPECT_THAT(text, ContainsRegex(std::string(word) + "[^\n]* [0-9.]+ (B|KiB|MiB|GiB|TiB)"));
    std::size_t lines = 0;
    std::istringstream stream(text);
    for (std::string each; std::getline(stream, each);)
      lines += each.find(word) != std::string::npos ? 1 : 0;
    EXPECT_EQ(lines, 1u) << word;
  }
}

TEST(Summary, FitsOnAScreen) {
  const std::string text = summary(busy_run());
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 24);
}

TEST(ProgressLine, ShowsStepMemoryAndRates) {
  EXPECT_EQ(
      progress_line({12, 3.91, 1900_MiB, 3_GiB, TransferRate(1.25e9), TransferRate(2.5e9)}, 100),
      "[spillway] step 12  3.91 s  memory 1.86 GiB  spilled 3.00 GiB  in 1.25 GB/s, "
      "out 2.50 GB/s");
}

TEST(ProgressLine, ShowsWhatIsOnEachDevice) {
  EXPECT_EQ(
      progress_line(
          {12, 3.91, 12_MiB, 3_GiB, TransferRate(1.25e9), TransferRate(2.5e9), {{"cuda:0", 2_GiB}}},
          110),
      "[spillway] step 12  3.91 s  memory 12.0 MiB, cuda:0 2.00 GiB  spilled 3.00 GiB  in "
      "1.25 GB/s, out 2.50 GB/s");
}

TEST(ProgressLine, KeepsToTheWidth) { EXPECT_EQ(progress_line({}, 20).size(), 20u); }

}  // namespace
}  // namespace spillway::runtime
