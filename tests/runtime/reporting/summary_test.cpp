#include "spillway/runtime/reporting/summary.h"

#include <gmock/gmock.h>

#include <sstream>

namespace spillway::runtime {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

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
  s.rates = profile::TransferRates{.write_bytes_per_second = 1.5e9, .read_bytes_per_second = 3e9};
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

TEST(Summary, ShowsARun) {
  EXPECT_EQ(
      summary(busy_run()),
      "[spillway] needed   5.00 GiB  of tensors alive at once, wherever they were\n"
      "[spillway] budget   2.00 GiB  given\n"
      "[spillway] peak     1.99 GiB  of tensors in memory; the whole process took 2.34 GiB\n"
      "[spillway] steps    10, median 3.91 s\n"
      "[spillway] swapped  30.0 GiB out, 28.0 GiB in (3.00 GiB and 2.80 GiB per step); "
      "3.00 GiB left without a write\n"
      "[spillway] to       io_uring, direct I/O, /scratch (ext4); busy 12.0 s; about 1.50 GB/s "
      "out, 3.00 GB/s in\n"
      "[spillway] wear     69.6 TB a day at this pace; disks rated for 1.2e+03 TB of writes "
      "(--endurance) would last 17.2 days of training\n"
      "[spillway] replayed 410 operators recomputed in 2.20 s, which brought back 12.0 GiB that "
      "had been dropped; 3 of them in steps that did not match the plan\n"
      "[spillway] stalled  413 ms of 80.0 s (0.5 %): 300 ms for tensors to come in, "
      "100 ms for room, 12.6 ms in 7 traps\n"
      "[spillway] learned  2 kinds of step; 12 of 17410 operators did not match the "
      "plan\n"
      "[spillway] planned  3.75 s per step, measured 3.90 s (+4.0 %); at most 1.99 GiB in "
      "memory, measured 1.99 GiB\n"
      "[spillway] bound    3.50 s per step: no plan is faster with this memory and the times "
      "of operators and disk that the planned time is made of; that is 7.1 % above it\n"
      "[spillway] advice   nothing; with less memory, down to 810MiB, it runs more slowly\n");
}

TEST(Summary, NamesTheOperatorsThatAHeldUpRunWaitedIn) {
  RunStatistics s = busy_run();
  EXPECT_THAT(summary(s), Not(HasSubstr("mostly")));
  s.memory.fetch_wait = std::chrono::seconds(20);
  EXPECT_THAT(summary(s), HasSubstr("[spillway] mostly   300 ms in aten::conv3d(float[1, 16]): "
                                    "250 ms for its inputs, 50.0 ms for room\n"));
}

TEST(Summary, NamesTheValuesThatAHeldUpRunWaitedFor) {
  RunStatistics s = busy_run();
  s.learned.stalls = {{"activation 31", profile::StorageClass::kActivation, 64_MiB, "aten::relu",
                       12, std::chrono::milliseconds(250), std::chrono::milliseconds(50)},
                      {"parameter 3",
                       profile::StorageClass::kParameter,
                       1_MiB,
                       "",
                       1,
                       std::chrono::milliseconds(2),
                       {}}};
  EXPECT_THAT(summary(s), Not(HasSubstr("activation")));
  s.memory.fetch_wait = std::chrono::seconds(20);
  EXPECT_THAT(summary(s), HasSubstr("[spillway]          300 ms for activation 31 of 64.0 MiB from "
                                    "aten::relu: 250 ms to come in, 50.0 ms for room\n"
                                    "[spillway]          2.00 ms for parameter 3 of 1.00 MiB: "
                                    "2.00 ms to come in, 0 s for room\n"));
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

TEST(Summary, TellsOfEachDevice) {
  const std::string text = summary(device_run());
  EXPECT_THAT(text, StartsWith("[spillway] cuda:0   needed 5.00 GiB, budget 2.00 GiB (given), "
                               "peak 1.99 GiB; Fast 16, 16.0 GiB\n"
                               "[spillway] steps    10, median 3.91 s\n"
                               "[spillway] swapped  30.0 GiB out, 28.0 GiB in"));
  EXPECT_THAT(text, HasSubstr("30.0 GiB into host memory (at most 3.00 GiB at once) and 28.0 GiB "
                              "back, 2.00 GiB on to the disks"));
  EXPECT_THAT(text, HasSubstr("[spillway] advice   cuda:0: nothing; with less memory, down to "
                              "cuda:0=810MiB, it runs more slowly\n"));
  // Of the host, which moved nothing itself.
  EXPECT_THAT(text, Not(HasSubstr("everything fitted")));
}

TEST(Summary, TellsOfTheHostBehindDevicesInOneLineWhereNothingMoved) {
  const std::string line = "\n[spillway] cpu      needed 12.0 MiB, budget 8.00 GiB (auto), peak "
                           "12.0 MiB; the whole process took 1.00 GiB\n[spillway] ";
  RunStatistics s = device_run();
  s.peak_rss = 1_GiB;
  s.devices[0].memory.spilled = s.devices[0].memory.fetched = 0_B;
  EXPECT_THAT(summary(s), HasSubstr(line + "wear "));
  s.memory.spilled = 20_MiB;
  EXPECT_THAT(summary(s), HasSubstr(line + "steps    0\n[spillway] swapped  20.0 MiB out"));
}

/// All of them write to the same disks.
TEST(Summary, CountsWhatAllDevicesWroteAsWear) {
  RunStatistics s = device_run();
  const std::string text = summary(s);
  EXPECT_THAT(text, HasSubstr("[spillway] wear     69.6 TB a day at this pace"));
  s.disk_written = 60_GiB;
  EXPECT_THAT(summary(s), HasSubstr("[spillway] wear     139 TB a day at this pace"));
}

TEST(Summary, AdvisesOnTheBudgetOfADevice) {
  RunStatistics s = device_run();
  s.devices[0].refusal = {RefusalCause::kBudget, "it does not fit"};
  s.devices[0].smallest_budget = 3_GiB;
  EXPECT_THAT(summary(s), HasSubstr("cuda:0: give a budget of at least cuda:0=3GiB"));
}

TEST(Summary, AdvisesNothingOfItsOwnBehindAnError) {
  RunStatistics s = device_run();
  s.has_told_errors = true;
  EXPECT_THAT(summary(s), HasSubstr("[spillway] advice   what the error above says\n"));
  s.devices[0].refusal = {RefusalCause::kBudget, "it does not fit"};
  s.devices[0].smallest_budget = 3_GiB;
  EXPECT_THAT(summary(s), HasSubstr("advice   cuda:0: give a budget of at least cuda:0=3GiB"));
}

TEST(Summary, NamesTheRankWhereSeveralHaveOneTerminal) {
  const std::string text = summary(device_run(), "1");
  EXPECT_THAT(text, StartsWith("[spillway 1] cuda:0   needed 5.00 GiB"));
  EXPECT_THAT(text, Not(HasSubstr("[spillway] ")));
}

TEST(Summary, FitsOnAScreen) {
  const std::string text = summary(busy_run());
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 24);
}

TEST(Summary, SaysWhenNothingHadToMove) {
  RunStatistics s = busy_run();
  s.memory.live_peak = 1_GiB;
  s.memory.spilled = s.memory.fetched = 0_B;
  EXPECT_THAT(summary(s), HasSubstr("nothing was swapped"));
  EXPECT_THAT(summary(s), HasSubstr("everything fitted, and this trainer does not depend"));
  s.steps = 0;
  EXPECT_THAT(summary(s), HasSubstr("everything fitted until the end, and no step was seen"));
}

TEST(Summary, NamesBothTiersAndWhatWentThrough) {
  RunStatistics s = busy_run();
  s.store = "host memory, 64.0 MiB, before io_uring, direct I/O, /scratch (ext4)";
  swap::HostTierReport& host = s.memory.store.host;
  host.capacity = 64_MiB;
  host.written = 40_GiB;
  host.read = 30_GiB;
  host.demoted = 5_GiB;
  EXPECT_THAT(summary(s),
              HasSubstr("to       host memory, 64.0 MiB, before io_uring, direct I/O, /scratch "
                        "(ext4); busy "));
  EXPECT_THAT(
      summary(s),
      HasSubstr(
          "; 40.0 GiB into host memory (at most 0 B at once) and 30.0 GiB back, 5.00 GiB on to "
          "the disks"));
}

TEST(Summary, SaysThatWhatWasNeededIsOfAPartOfTheFirstStep) {
  RunStatistics s = busy_run();
  EXPECT_THAT(summary(s), Not(HasSubstr("so far")));
  s.steps = 0;
  s.has_whole_step = false;
  EXPECT_THAT(summary(s),
              HasSubstr("[spillway] needed   5.00 GiB  of tensors alive at once so far, "
                        "wherever they were; no step came to its end, which may need "
                        "more\n"));
}

/// Each rerun with the budget that the one before it had named was refused, and named more.
TEST(Summary, AdvisesNoBudgetAsEnoughThatIsOfAPartOfTheFirstStep) {
  RunStatistics s = busy_run();
  s.refusal = {RefusalCause::kBudget, "aten::randn() does not fit"};
  s.smallest_budget = 4_GiB;
  EXPECT_THAT(summary(s), HasSubstr("advice   give a budget of at least 4GiB\n"));
  s.has_whole_step = false;
  const std::string told =
      "advice   give a budget of at least 4GiB, below which what has run does not fit; the first "
      "step did not end, and the rest of it may need more: ";
  EXPECT_THAT(summary(s), HasSubstr(told + "a run without --budget tells how much\n"));
  s.is_budget_auto = true;  // That was such a run.
  EXPECT_THAT(summary(s), HasSubstr(told + "give several times as much, on a machine with more "
                                           "memory if need be\n"));
}

/// Rounded to the nearest figure, they named less than would do.
TEST(Summary, RoundsTheBudgetsThatItNamesUp) {
  RunStatistics s = busy_run();
  s.budget = 8_GiB;
  s.smallest_budget = 4100_MiB + 1_B;
  EXPECT_THAT(summary(s), HasSubstr("; with less memory, down to 4101MiB, it runs more slowly\n"));
  s.budget = 2_GiB;
  s.refusal = {RefusalCause::kBudget, "aten::randn() does not fit"};
  EXPECT_THAT(summary(s), HasSubstr("advice   give a budget of at least 4101MiB\n"));
}

/// What that run tells.
TEST(Summary, NamesTheSmallestBudgetWhereEverythingFitted) {
  RunStatistics s = busy_run();
  s.memory.live_peak = 1_GiB;
  s.memory.spilled = s.memory.fetched = 0_B;
  EXPECT_THAT(summary(s), HasSubstr("does not depend on Spillway here; with less memory, down to "
                                    "810MiB, it runs more slowly\n"));
  s.has_whole_step = false;  // The step that runs may need more.
  EXPECT_THAT(summary(s), HasSubstr("does not depend on Spillway here\n"));
}

TEST(Summary, EndsAdviceOnABudgetWithTheLimitOfAddresses) {
  RunStatistics s = busy_run();
  s.address_limit = "; the address-space limit is 8.00 GiB; lift it with `ulimit -v unlimited`";
  EXPECT_THAT(summary(s), Not(HasSubstr("ulimit")));
  s.refusal = {RefusalCause::kBudget, "aten::randn() does not fit"};
  s.smallest_budget = 4_GiB;
  EXPECT_THAT(summary(s), HasSubstr("a budget of at least 4GiB; the address-space limit is 8.00 "
                                    "GiB; lift it with `ulimit -v unlimited`\n"));
  s.refusal = {RefusalCause::kAddresses, "no addresses are left"};
  s.why_no_addresses = s.address_limit + "; a budget of at most 1GiB leaves more";
  const std::string told =
      "advice   allow more addresses where a limit is named, or let it hold less: tensors on disk "
      "take addresses, too";
  EXPECT_THAT(summary(s), HasSubstr(told + s.why_no_addresses + "\n"));
  s.why_no_addresses.clear();
  EXPECT_THAT(summary(s), HasSubstr(told + "\n"));
}

TEST(Summary, TellsWhatWasVerified) {
  RunStatistics s = busy_run();
  EXPECT_THAT(summary(s), Not(HasSubstr("verified")));
  s.verify = true;
  s.memory.store.checked = 12;
  EXPECT_THAT(summary(s),
              HasSubstr("] verified 12 reads of pages from the store, 0 with wrong bytes\n"));
  s.verified = {.equal_kinds = 40, .differing_kinds = 2, .operators = {{"aten::mm", 40}}};
  s.memory.store.wrong = 1;
  EXPECT_THAT(
      summary(s),
      HasSubstr("] verified 40 kinds of call of 1 operators gave the same bits in a second "
                "run; 2 did not, and are not run again; 12 reads of pages from the store, 1 "
                "with wrong bytes\n"));
  s.memory.store.recovered = 3;
  EXPECT_THAT(summary(s), HasSubstr(", 1 with wrong bytes; 3 were wrong at first and right when "
                                    "read again\n"));
}

TEST(Summary, TellsNothingOfWearWhenNoDiskWasWritten) {
  RunStatistics s = busy_run();
  s.disk_written = 0_B;
  EXPECT_THAT(summary(s), Not(HasSubstr("wear")));
}

TEST(Summary, AdvisesByTheLargestLoss) {
  RunStatistics s = busy_run();
  s.memory.fetch_wait = std::chrono::seconds(20);
  EXPECT_THAT(summary(s), HasSubstr("advice   allow more memory"));
  RunStatistics first = s;
  first.steps = 2;
  first.learned.plan_steps = 0;
  EXPECT_THAT(summary(first), HasSubstr("advice   run more steps"));
  s.memory.store.busy_time = std::chrono::seconds(76);
  EXPECT_THAT(summary(s), HasSubstr("the disk was the limit"));
  s.memory.store.busy_time = std::chrono::seconds(5);
  s.learned.deviations = s.ops / 2;
  EXPECT_THAT(summary(s), HasSubstr("steps hardly repeat"));
  s.learned.deviations = 0;
  s.memory.fault_wait = std::chrono::seconds(40);
  EXPECT_THAT(summary(s), HasSubstr("outside of operators"));
  s.prefetch = false;
  EXPECT_THAT(summary(s), HasSubstr("leave --prefetch on"));
}

TEST(Summary, AdvisesAfterARefusal) {
  RunStatistics s = busy_run();
  s.memory.spilled = s.memory.fetched = 0_B;
  s.memory.live_peak = 1_GiB;
  s.refusal = {RefusalCause::kBudget, "aten::randn() does not fit"};
  s.smallest_budget = 4_GiB;
  EXPECT_THAT(summary(s), HasSubstr("advice   give a budget of at least 4GiB"));
  s.refusal = {RefusalCause::kStore, "No space left in /scratch"};
  EXPECT_THAT(summary(s), HasSubstr("advice   name a directory with more room"));
  s.smallest_budget = 1_GiB;
  EXPECT_THAT(summary(s), HasSubstr("advice   name a directory with more room"));
  s.refusal = {RefusalCause::kUnreadable, "wrong bytes"};
  EXPECT_THAT(summary(s), HasSubstr("advice   go on from the last checkpoint, with a directory on "
                                    "another disk (--nvme)\n"));
  s.refusal = {RefusalCause::kRecomputation, "another run failed"};
  EXPECT_THAT(summary(s),
              HasSubstr("advice   go on from the last checkpoint with --recompute off"));
}

TEST(Summary, AddsWaitsOfSeveralThreadsUp) {
  RunStatistics s = busy_run();
  s.memory.fetch_wait = std::chrono::seconds(100);
  EXPECT_THAT(summary(s), HasSubstr("stalled  100 s in all threads together: 100 s for tensors"));
}

TEST(Summary, DrawsNoConclusionsFromAFewSeconds) {
  RunStatistics s = busy_run();
  s.run_seconds = 20.0;
  s.steps = 2;
  EXPECT_THAT(summary(s), Not(HasSubstr("wear")));
  EXPECT_THAT(summary(s), Not(HasSubstr("] planned")));
}

TEST(Summary, NamesTheStrategyAndSaysWhenNoStepWentAsPlanned) {
  RunStatistics s = busy_run();
  s.learned.strategy = "dtr";
  EXPECT_THAT(summary(s), HasSubstr("planned  3.75 s per step by dtr, measured 3.90 s (+4.0 %);"));
  s.learned.followed_seconds = 0.0;
  s.learned.followed_peak = Bytes();
  EXPECT_THAT(summary(s), HasSubstr("planned  3.75 s per step by dtr, but no step went as planned "
                                    "from its first operator to the last\n"));
}

RunStatistics run_with_given_plan() {
  RunStatistics s = busy_run();
  s.learned.strategy = "dtr";
  s.steps = 5;
  s.given_plan = {.file = "net.plan",
                  .budget = 2_GiB,
                  .rates = {.write_bytes_per_second = 1.4e9, .read_bytes_per_second = 3e9},
                  .step_seconds = 3.5,
                  .steps = 4,
                  .all_steps = 5,
                  .misfit = {}};
  return s;
}

TEST(Summary, TellsForHowManyStepsAGivenPlanWasFollowed) {
  const std::string text = summary(run_with_given_plan());
  EXPECT_THAT(text, HasSubstr("] plan     net.plan was followed in 4 of 5 steps\n"));
  RunStatistics longer = run_with_given_plan();
  longer.steps = 6;
  EXPECT_THAT(summary(longer), HasSubstr("in 4 of 5 steps that another one came after\n"));
  EXPECT_THAT(text, HasSubstr("planned  3.75 s per step by dtr (3.50 s when the plan was made), "
                              "measured 3.90 s (+4.0 %)"));
  EXPECT_THAT(text, Not(HasSubstr("it was made for")));
}

TEST(Summary, TellsThatAGivenPlanWasMadeForAnotherDisk) {
  RunStatistics s = run_with_given_plan();
  s.given_plan->rates.read_bytes_per_second = 100e9;
  EXPECT_THAT(summary(s),
              HasSubstr("it was made for 1.40 GB/s out and 100.00 GB/s in, this run saw "
                        "1.50 GB/s and 3.00 GB/s: "));
}

TEST(Summary, AdvisesAnotherPlanWhereTheGivenOneFitsNoStep) {
  RunStatistics s = run_with_given_plan();
  s.given_plan->steps = 0;
  s.given_plan->misfit = "a step with 312 operators and not these 260";
  EXPECT_THAT(summary(s), HasSubstr("advice   the plan fits no step of this run: record one "));
}

TEST(Summary, NamesThePlanAsTheCauseOfSwapsThatTheBudgetDoesNotAskFor) {
  RunStatistics s = run_with_given_plan();
  s.given_plan->budget = 1_GiB;
  const std::string told =
      "it was made for 1.00 GiB and swaps or recomputes what does not fit into "
      "these, although there are 2.00 GiB\n";
  EXPECT_THAT(summary(s), HasSubstr(told));
  EXPECT_THAT(summary(s),
              HasSubstr("advice   make a plan for these 2.00 GiB: spillway plan PROFILE "
                        "--budget 2048MiB --out FILE\n"));
  RunStatistics recomputing = s;  // And all that is alive would fit.
  recomputing.memory.live_peak = 1900_MiB;
  recomputing.memory.spilled = recomputing.memory.fetched = 0_B;
  EXPECT_THAT(summary(recomputing),
              AllOf(HasSubstr(told), HasSubstr("advice   leave out --plan: all tensors fit"),
                    Not(HasSubstr("everything fitted"))));
  RunStatistics other = s;
  other.given_plan->steps = 0;  // Not followed: it is the cause of nothing.
  EXPECT_THAT(summary(other), Not(HasSubstr(told)));
  s.memory.live_peak = 1_GiB;  // All that the trainer has fits into the plan's memory.
  EXPECT_THAT(summary(s), Not(HasSubstr("it was made for 1.00 GiB")));
}

TEST(Summary, SaysWhyAGivenPlanWasNotFollowed) {
  RunStatistics s = run_with_given_plan();
  s.given_plan->steps = 0;
  EXPECT_THAT(summary(s), HasSubstr("plan     net.plan was followed in none of 5 steps: none went "
                                    "as planned from its first operator to the last\n"));
  EXPECT_THAT(summary(s), Not(HasSubstr("] planned")));
  s.given_plan->misfit = "net.plan: the plan is for another program";
  EXPECT_THAT(summary(s), HasSubstr("plan     net.plan: the plan is for another program; it was "
                                    "followed in none of 5 steps\n"));
  s.given_plan->misfit.clear();
  s.given_plan->all_steps = 0;
  EXPECT_THAT(summary(s), HasSubstr("plan     net.plan was not followed: no step has ended\n"));
}

TEST(Summary, TellsWhatItCannotTell) {
  RunStatistics s = busy_run();
  s.learned.shapes = 0;
  s.not_reported = "what was learned, since it was in use";
  EXPECT_THAT(summary(s),
              HasSubstr("] learned  not reported: what was learned, since it was in use\n"));
}

TEST(Summary, SurvivesARunOfNoTime) {
  const std::string text = summary(RunStatistics{});
  EXPECT_THAT(text, HasSubstr("0 B"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(ProgressLine, ShowsStepMemoryAndRates) {
  EXPECT_EQ(progress_line({12, 3.91, 1900_MiB, 3_GiB, 1.25e9, 2.5e9}, 100),
            "[spillway] step 12  3.91 s  memory 1.86 GiB  spilled 3.00 GiB  in 1.25 GB/s, "
            "out 2.50 GB/s");
}

TEST(ProgressLine, ShowsWhatIsOnEachDevice) {
  EXPECT_EQ(progress_line({12, 3.91, 12_MiB, 3_GiB, 1.25e9, 2.5e9, {{"cuda:0", 2_GiB}}}, 110),
            "[spillway] step 12  3.91 s  memory 12.0 MiB, cuda:0 2.00 GiB  spilled 3.00 GiB  in "
            "1.25 GB/s, out 2.50 GB/s");
}

TEST(ProgressLine, KeepsToTheWidth) { EXPECT_EQ(progress_line({}, 20).size(), 20u); }

}  // namespace
}  // namespace spillway::runtime
