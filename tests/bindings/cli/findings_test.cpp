#include "findings.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace spillway::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

topology::Machine good_machine() {
  topology::Machine machine;
  machine.processors.cores = 8;
  machine.processors.threads = 16;
  machine.processors.numa_nodes.resize(1);
  machine.memory.total = 64_GiB;
  machine.memory.available = 60_GiB;
  machine.limits = {topology::kUnlimited, topology::kUnlimited, topology::kUnlimited};
  machine.kernel.release = "6.18.0";
  machine.kernel.overcommit_mode = 0;
  machine.kernel.huge_pages = "madvise";
  return machine;
}

Finding finding_of(const topology::Machine& machine, const std::string& subject) {
  for (const Finding& finding : check_machine(machine))
    if (finding.subject == subject) return finding;
  ADD_FAILURE() << "no finding about " << subject;
  return {};
}

TEST(CheckMachine, IsContentWithAGoodOne) {
  for (const Finding& finding : check_machine(good_machine())) {
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.subject << ": " << finding.value;
    EXPECT_EQ(finding.mend, "") << finding.subject;
  }
}

TEST(CheckMachine, SaysHowToMendWhateverIsWrong) {
  topology::Machine machine;  // Nothing is known.
  for (const Finding& finding : check_machine(machine))
    EXPECT_EQ(finding.verdict == Verdict::kOk, finding.mend.empty()) << finding.subject;
  machine = good_machine();
  machine.limits.locked_bytes = (64_KiB).count();
  EXPECT_EQ(finding_of(machine, "locked memory").verdict, Verdict::kWarning);
  machine.kernel.overcommit_mode = 2;
  EXPECT_THAT(finding_of(machine, "overcommit").mend, HasSubstr("vm.overcommit_memory"));
  machine.kernel.huge_pages = "never";
  EXPECT_THAT(finding_of(machine, "huge pages").mend, HasSubstr("madvise"));
}

TEST(CheckMachine, SaysWhichMappersAnOlderKernelLeaves) {
  auto machine = good_machine();
  machine.kernel.release = "5.4.0-1";
  EXPECT_EQ(finding_of(machine, "kernel").verdict, Verdict::kWarning);
  EXPECT_EQ(finding_of(machine, "kernel").value, "5.4.0-1; mappers that can work: copy");
  EXPECT_THAT(finding_of(machine, "kernel").mend, HasSubstr("Linux 5.7"));
  machine.kernel.release = "6.1.0-13-amd64";
  EXPECT_EQ(finding_of(machine, "kernel").verdict, Verdict::kWarning);
  EXPECT_EQ(finding_of(machine, "kernel").value,
            "6.1.0-13-amd64; mappers that can work: signal, copy");
  EXPECT_THAT(finding_of(machine, "kernel").mend, HasSubstr("Linux 6.8"));
  machine.kernel.release = "6.8.0";
  EXPECT_EQ(finding_of(machine, "kernel").verdict, Verdict::kOk);
}

TEST(CheckMachine, ListsGpus) {
  auto machine = good_machine();
  EXPECT_EQ(finding_of(machine, "GPUs").value, "none on the PCI bus");
  machine.gpus = {{"NVIDIA A100", "0000:3b:00.0"}, {"NVIDIA L4", "0000:5e:00.0"}};
  const Finding gpus = finding_of(machine, "GPUs");
  EXPECT_EQ(gpus.value, "NVIDIA A100 (0000:3b:00.0), NVIDIA L4 (0000:5e:00.0)");
  // Whether they can be used is told by check_cuda.
  EXPECT_EQ(gpus.verdict, Verdict::kOk);
  EXPECT_EQ(gpus.mend, "");
}

TEST(CheckMachine, ListsCgroupLimits) {
  auto machine = good_machine();
  machine.memory.limits = {{"/sys/fs/cgroup/job/memory.max", 8_GiB, 1_GiB}};
  EXPECT_EQ(finding_of(machine, "memory limits").value,
            "8.00 GiB (1.00 GiB used) by /sys/fs/cgroup/job/memory.max");
}

TEST(CheckBudget, TurnsARefusalIntoAProblem) {
  auto machine = good_machine();
  EXPECT_EQ(check_budget({}, machine).finding.verdict, Verdict::kOk);
  machine.memory.available = 100_MiB;
  const auto [finding, budget] = check_budget({}, machine);
  EXPECT_EQ(budget.budget, Bytes());
  EXPECT_EQ(finding.verdict, Verdict::kProblem);
  EXPECT_THAT(finding.mend, HasSubstr("give the budget as a size"));
}

/// A run under these limits is refused, or has addresses for less than the machine has memory.
TEST(CheckAddressSpace, TellsTheLimitAndWhatARunReserves) {
  auto machine = good_machine();
  const auto finding = [&](const char* budget) {
    runtime::Settings settings;
    runtime::assign_setting(settings, "budget", budget, "test");
    return check_address_space(machine.limits, check_budget(settings, machine).budget);
  };
  EXPECT_EQ(finding("auto").verdict, Verdict::kOk);
  EXPECT_EQ(finding("auto").value, "unlimited; a run reserves 1.00 TiB for tensors");
  machine.use.address_space_bytes = (1_GiB).count();
  machine.limits.address_space_bytes = (4096_GiB).count();
  EXPECT_EQ(finding("auto").verdict, Verdict::kOk);
  machine.limits.address_space_bytes = (8_GiB).count();
  EXPECT_EQ(finding("auto").verdict, Verdict::kWarning);
  EXPECT_THAT(finding("auto").value,
              testing::MatchesRegex("8.00 GiB; a run reserves 2[.][0-9]+ GiB "
                                    "of them for tensors at most, instead of "
                                    "1.00 TiB"));
  EXPECT_THAT(finding("auto").mend, HasSubstr("ulimit -v unlimited; a budget of at most "));
  EXPECT_EQ(finding("6GiB").verdict, Verdict::kProblem);
  EXPECT_THAT(finding("6GiB").value, HasSubstr("8.00 GiB; a run finds too little for its budget"));
  EXPECT_THAT(finding("6GiB").mend, HasSubstr("ulimit -v unlimited"));
}

TEST(CheckBudget, HoldsItToTheLimitsOfTheProcess) {
  auto machine = good_machine();
  machine.use.address_space_bytes = (1_GiB).count();
  machine.limits.address_space_bytes = (8_GiB).count();
  const auto [lowered, budget] = check_budget({}, machine);
  EXPECT_EQ(lowered.verdict, Verdict::kWarning);
  EXPECT_THAT(lowered.value, HasSubstr("lowered to what the limits of the process leave"));
  EXPECT_THAT(lowered.mend, HasSubstr("RLIMIT_AS (ulimit -v) is 8.00 GiB"));
  EXPECT_LT(budget.budget, 2_GiB);
  runtime::Settings settings;
  runtime::assign_setting(settings, "budget", "6GiB", "test");
  const auto refused = check_budget(settings, machine);
  EXPECT_EQ(refused.finding.verdict, Verdict::kProblem);
  EXPECT_EQ(refused.finding.value, "6.00 GiB (given)");
  EXPECT_THAT(refused.finding.mend, HasSubstr("RLIMIT_AS (ulimit -v) is 8.00 GiB"));
  EXPECT_EQ(refused.budget.budget, Bytes());
}

/// Any refusal used to be told as one of addresses, and of several warnings only the first.
TEST(CheckBudget, TellsWhichLimitRefusesAndAllThatIsLowered) {
  auto machine = good_machine();
  machine.use.address_space_bytes = machine.use.data_bytes = (1_GiB).count();
  machine.limits.address_space_bytes = (100_GiB).count();
  machine.limits.data_bytes = (8_GiB).count();
  runtime::Settings settings;
  runtime::assign_setting(settings, "budget", "6GiB", "test");
  const auto refused = check_budget(settings, machine);
  EXPECT_EQ(refused.finding.verdict, Verdict::kProblem);
  EXPECT_THAT(refused.finding.mend, AllOf(HasSubstr("RLIMIT_DATA (ulimit -d) is 8.00 GiB"),
                                          HasSubstr("RLIMIT_AS (ulimit -v) is 100 GiB")));
  EXPECT_EQ(refused.budget.budget, Bytes());
  const Finding space = check_address_space(machine.limits, refused.budget);
  EXPECT_EQ(space.verdict, Verdict::kWarning);
  EXPECT_THAT(space.value, testing::MatchesRegex("100 GiB; a run reserves 43[.][0-9]+ GiB of .*"));
  const auto lowered = check_budget({}, machine);
  EXPECT_EQ(lowered.finding.verdict, Verdict::kWarning);
  EXPECT_THAT(lowered.finding.mend, AllOf(HasSubstr("RLIMIT_DATA (ulimit -d) is 8.00 GiB"),
                                          HasSubstr("RLIMIT_AS (ulimit -v) is 100 GiB")));
  EXPECT_EQ(lowered.budget.budget, 1792_MiB);
}

using memory::MapperKind;
using Probes = std::vector<memory::MapperProbe>;

Finding mapper_finding(const Probes& probes, const std::string& mapper = "auto",
                       const std::string& budget = "1GiB") {
  runtime::Settings settings;
  runtime::assign_setting(settings, "mapper", mapper, "test");
  runtime::assign_setting(settings, "budget", budget, "test");
  topology::Machine machine = good_machine();
  machine.kernel.mappings_max = 65530;
  return check_mappers(settings, machine, runtime::resolve_budget(settings, machine), probes);
}

TEST(CheckMappers, TakesTheBestThatWorks) {
  Probes probes = {{MapperKind::kUserfaultfd, true, ""},
                   {MapperKind::kUserfaultfdUser, true, ""},
                   {MapperKind::kSignal, true, ""}};
  EXPECT_EQ(mapper_finding(probes).value, "userfaultfd");
  EXPECT_EQ(mapper_finding(probes).verdict, Verdict::kOk);
  probes[0] = {MapperKind::kUserfaultfd, false, "no privilege: sysctl this"};
  EXPECT_EQ(mapper_finding(probes).verdict, Verdict::kWarning);
  EXPECT_THAT(mapper_finding(probes).mend, HasSubstr("sysctl this"));
  probes[1].is_viable = probes[2].is_viable = false;
  probes.push_back({MapperKind::kCopy, true, ""});
  EXPECT_THAT(mapper_finding(probes).value, HasSubstr("copying pages is slow"));
  EXPECT_EQ(mapper_finding(probes).verdict, Verdict::kWarning);
  probes.pop_back();
  EXPECT_EQ(mapper_finding(probes).verdict, Verdict::kProblem);
}

TEST(CheckMappers, JudgesTheOneThatWasAskedFor) {
  Probes probes = {{MapperKind::kUserfaultfd, true, ""},
                   {MapperKind::kSignal, false, "a filter forbids it"},
                   {MapperKind::kCopy, true, ""}};
  EXPECT_EQ(mapper_finding(probes, "userfaultfd").verdict, Verdict::kOk);
  EXPECT_EQ(mapper_finding(probes, "userfaultfd").value, "userfaultfd, as was asked for");
  const Finding slow = mapper_finding(probes, "copy");
  EXPECT_EQ(slow.verdict, Verdict::kWarning);
  EXPECT_THAT(slow.value, HasSubstr("copy, as was asked for; "));
  EXPECT_THAT(slow.mend, HasSubstr("for userfaultfd: ask for auto (--mapper"));
  const Finding refused = mapper_finding(probes, "signal");
  EXPECT_EQ(refused.verdict, Verdict::kProblem);
  EXPECT_EQ(refused.value, "signal was asked for and does not work");
  EXPECT_THAT(refused.mend, HasSubstr("a filter forbids it (choose another"));
}

TEST(CheckMappers, SaysWhenTheBestCannotServeTheBudget) {
  const Probes probes = {{MapperKind::kUserfaultfd, false, "no privilege"},
                         {MapperKind::kSignal, true, ""}};
  const Finding lowered = mapper_finding(probes, "auto", "auto");
  EXPECT_EQ(lowered.verdict, Verdict::kWarning);
  EXPECT_THAT(lowered.mend, HasSubstr("the budget is lowered from 55.2 GiB to 40.0 GiB"));
  const Finding refused = mapper_finding(probes, "auto", "50GiB");
  EXPECT_EQ(refused.verdict, Verdict::kProblem);
  EXPECT_THAT(refused.mend, HasSubstr("give a budget of at most 40956MiB"));
  EXPECT_EQ(mapper_finding({{MapperKind::kUserfaultfd, true, ""}}, "auto", "50GiB").verdict,
            Verdict::kOk);
}

TEST(CheckIoUring, ExplainsItsAbsence) {
  EXPECT_EQ(check_io_uring("").verdict, Verdict::kOk);
  EXPECT_EQ(check_io_uring("a filter forbids it").mend, "a filter forbids it");
}

runtime::ResolvedDirectory disk(double gb_per_second) {
  runtime::ResolvedDirectory directory;
  directory.facts.path = "/scratch";
  directory.facts.filesystem = "xfs";
  directory.facts.free = 100_GiB;
  directory.facts.device = topology::BlockDevice{"nvme0n1", "FAST DISK", false};
  topology::DiskRate rate;
  rate.read_bytes_per_second = rate.write_bytes_per_second = gb_per_second * 1e9;
  rate.measured_at = "yesterday";
  directory.measured = rate;
  return directory;
}

TEST(CheckDisk, ShowsRatesFromTheFileOrFromNow) {
  const Finding recorded = check_disk(disk(3.0), std::nullopt);
  EXPECT_EQ(recorded.verdict, Verdict::kOk);
  EXPECT_THAT(recorded.value, HasSubstr("FAST DISK"));
  EXPECT_THAT(recorded.value, HasSubstr("read 3.00 GB/s (bench-io, yesterday)"));
  swap::DiskProbe probe;
  probe.description = "io_uring";
  probe.rates = {{2_MiB, 16, {2.5, 2, 3}, {1.5, 1, 2}, {1, 1, 1}, {1.25, 1, 1}}};
  EXPECT_THAT(check_disk(disk(3.0), probe).value,
              HasSubstr("write 2.50 GB/s, read 1.50 GB/s, both 2.25 GB/s (by io_uring)"));
}

TEST(CheckDisk, ComplainsOfSlowAndOfRamDisks) {
  EXPECT_EQ(check_disk(disk(0.2), std::nullopt).verdict, Verdict::kWarning);
  auto ram = disk(9.0);
  ram.facts.is_ram_disk = true;
  EXPECT_EQ(check_disk(ram, std::nullopt).verdict, Verdict::kWarning);  // A run warns, too.
}

TEST(CheckDisk, PassesOnWhatWasFoundOutAboutTheDirectory) {
  auto rotating = disk(3.0);
  rotating.warnings = {"it rotates"};
  EXPECT_EQ(check_disk(rotating, std::nullopt).verdict, Verdict::kWarning);
  EXPECT_EQ(check_disk(rotating, std::nullopt).mend, "it rotates");
}

TEST(CheckWorkingFolder, SaysWhatFollowsWhereFilesHaveNoTimeOfBirth) {
  EXPECT_EQ(check_working_folder("/work", true).verdict, Verdict::kOk);
  EXPECT_EQ(check_working_folder("/work", true).value, "/work");
  const Finding finding = check_working_folder("/home/me", false);
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_THAT(finding.value, HasSubstr("/home/me, where the file system does not tell"));
  EXPECT_THAT(finding.mend, HasSubstr("exist_ok=True"));
}

TEST(CheckTorch, NeedsACoreOfTheSameMinor) {
  EXPECT_EQ(check_torch({"python3", "/t/libtorch_cpu.so", "2.11.0"}, {"2.11"}).verdict,
            Verdict::kOk);
  const Finding other = check_torch({"python3", "/t/libtorch_cpu.so", "2.13.1"}, {"2.11"});
  EXPECT_EQ(other.verdict, Verdict::kProblem);
  EXPECT_THAT(other.mend, HasSubstr("serves LibTorch 2.11"));
  EXPECT_EQ(check_torch({"x", "/t", ""}, {"2.11"}).verdict, Verdict::kProblem);
  EXPECT_THAT(check_torch({"x", "/t", "2.11.0"}, {}).mend, HasSubstr("install"));
}

// The set-up keeps each LibTorch that it has ever fetched.
TEST(CheckTorch, OfTheSetUpIsSatisfiedWithOne) {
  const FoundTorch served{"the set-up", "/a", "2.11.0"};
  const FoundTorch other{"the set-up", "/b", "2.13.1"};
  const auto both = check_installed_torches({served, other}, {"2.11"});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].verdict, Verdict::kOk);
  EXPECT_EQ(both[1].verdict, Verdict::kWarning);
  EXPECT_THAT(both[1].mend, HasSubstr("SPILLWAY_OTHER_CORES"));
  EXPECT_EQ(check_installed_torches({other}, {"2.11"})[0].verdict, Verdict::kProblem);
}

TEST(ReportText, AlignsLinesAndCounts) {
  EXPECT_EQ(report_text({{"cores", "8", Verdict::kOk, ""},
                         {"memory limits", "none", Verdict::kWarning, "do this"},
                         {"disk", "bad", Verdict::kProblem, "do that"}}),
            "ok      cores          8\n"
            "warning memory limits  none\n"
            "                       -> do this\n"
            "problem disk           bad\n"
            "                       -> do that\n"
            "3 checks: 1 ok, 1 warning, 1 problem\n");
}

TEST(ReportJson, HoldsTheSameChecks) {
  const auto json = nlohmann::json::parse(
      report_json({{"cores", "8", Verdict::kOk, ""}, {"disk", "bad", Verdict::kProblem, "mend"}}));
  EXPECT_EQ(json.at("verdict"), "problem");
  EXPECT_EQ(json.at("checks").at(1).at("mend"), "mend");
  EXPECT_EQ(json.at("checks").at(0).at("verdict"), "ok");
}

}  // namespace
}  // namespace spillway::cli
