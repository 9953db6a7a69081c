#include "findings.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "finding_rows.h"
#include "support/golden_folder.h"
#include "support/golden_part.h"
#include "support/golden_text.h"

namespace spillway::cli {
namespace {

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

using Machine = topology::Machine;

const std::vector<std::pair<std::string, std::function<void(Machine&)>>> kOtherMachines = {
    {"nothing is known", [](Machine& m) { m = {}; }},
    {"little memory may be locked", [](Machine& m) { m.limits.locked_bytes = (64_KiB).count(); }},
    {"no memory is promised twice", [](Machine& m) { m.kernel.overcommit_mode = 2; }},
    {"no huge pages", [](Machine& m) { m.kernel.huge_pages = "never"; }},
    {"Linux 5.4", [](Machine& m) { m.kernel.release = "5.4.0-1"; }},
    {"Linux 6.1", [](Machine& m) { m.kernel.release = "6.1.0-13-amd64"; }},
    {"Linux 6.8", [](Machine& m) { m.kernel.release = "6.8.0"; }},
    // Whether they can be used is told by check_cuda.
    {"GPUs",
     [](Machine& m) {
       m.gpus = {{"NVIDIA A100", "0000:3b:00.0"}, {"NVIDIA L4", "0000:5e:00.0"}};
     }},
    {"a GPU without a driver",
     [](Machine& m) {
       m.gpus = {{"NVIDIA 0x2330", "0000:af:00.0", /*has_driver=*/false}};
     }},
    {"a group with a limit",
     [](Machine& m) {
       m.memory.limits = {{"/sys/fs/cgroup/job/memory.max", 8_GiB, 1_GiB}};
     }},
};

TEST(CheckMachine, IsWhatItsFileShows) {
  GoldenText golden(golden_file("findings.txt"));
  golden.add("a good machine", report_text(check_machine(good_machine())));
  const std::string good = rows_of(check_machine(good_machine()));
  for (const auto& [heading, change] : kOtherMachines) {
    Machine machine = good_machine();
    change(machine);
    golden.add_difference(heading, good, rows_of(check_machine(machine)));
    for (const Finding& finding : check_machine(machine))
      EXPECT_EQ(finding.verdict == Verdict::kOk, finding.mend.empty()) << finding.subject;
  }
}

TEST(CheckBudget, TurnsARefusalIntoAProblem) {
  auto machine = good_machine();
  EXPECT_EQ(check_budget({}, machine).finding.verdict, Verdict::kOk);
  machine.memory.available = 100_MiB;
  const auto [finding, budget] = check_budget({}, machine);
  EXPECT_EQ(budget.budget, Bytes());
  EXPECT_EQ(finding.verdict, Verdict::kProblem);
  GoldenPart golden;
  golden.add(rows_of({finding}));
}

/// A run under these limits is refused, or has addresses for less than the machine has memory.
TEST(CheckAddressSpace, TellsTheLimitAndWhatARunReserves) {
  auto machine = good_machine();
  const auto finding = [&](const char* budget) {
    runtime::Settings settings;
    runtime::assign_setting(settings, "budget", budget, "test");
    return check_address_space(machine.limits, check_budget(settings, machine).budget);
  };
  GoldenPart golden;
  golden.add("no limit", rows_of({finding("auto")}));
  machine.use.address_space_bytes = (1_GiB).count();
  machine.limits.address_space_bytes = (4096_GiB).count();
  golden.add("enough", rows_of({finding("auto")}));
  machine.limits.address_space_bytes = (8_GiB).count();
  golden.add("less", rows_of({finding("auto")}));
  golden.add("less than a budget takes", rows_of({finding("6GiB")}));
}

TEST(CheckBudget, HoldsItToTheLimitsOfTheProcess) {
  auto machine = good_machine();
  machine.use.address_space_bytes = (1_GiB).count();
  machine.limits.address_space_bytes = (8_GiB).count();
  const auto [lowered, budget] = check_budget({}, machine);
  GoldenPart golden;
  golden.add(rows_of({lowered}));
  EXPECT_LT(budget.budget, 2_GiB);
  runtime::Settings settings;
  runtime::assign_setting(settings, "budget", "6GiB", "test");
  const auto refused = check_budget(settings, machine);
  golden.add(rows_of({refused.finding}));
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
  GoldenPart golden;
  golden.add(rows_of({refused.finding}));
  EXPECT_EQ(refused.budget.budget, Bytes());
  golden.add(rows_of({check_address_space(machine.limits, refused.budget)}));
  const auto lowered = check_budget({}, machine);
  golden.add(rows_of({lowered.finding}));
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

runtime::ResolvedDirectory disk(double gb_per_second) {
  runtime::ResolvedDirectory directory;
  directory.facts.path = "/scratch";
  directory.facts.filesystem = "xfs";
  directory.facts.free = 100_GiB;
  directory.facts.device = topology::BlockDevice{"nvme0n1", "FAST DISK", false};
  topology::DiskRate rate;
  rate.read = rate.write = TransferRate(gb_per_second * 1e9);
  rate.measured_at = "yesterday";
  directory.measured = rate;
  return directory;
}

Probes probes_of(bool userfaultfd, bool signal, bool copy) {
  return {{MapperKind::kUserfaultfd, userfaultfd, userfaultfd ? "" : "no privilege: sysctl this"},
          {MapperKind::kSignal, signal, signal ? "" : "a filter forbids it"},
          {MapperKind::kCopy, copy, copy ? "" : "no memory"}};
}

TEST(CheckMappers, IsWhatItsFileShows) {
  GoldenText golden(golden_file("mapper_findings.txt"));
  const auto show = [&](const std::string& heading, const Finding& finding) {
    golden.add(heading, rows_of({finding}));
  };
  show("all work", mapper_finding(probes_of(true, true, true)));
  show("without privileges", mapper_finding(probes_of(false, true, true)));
  show("copies alone", mapper_finding(probes_of(false, false, true)));
  show("none", mapper_finding(probes_of(false, false, false)));
  show("asked for", mapper_finding(probes_of(true, false, true), "userfaultfd"));
  show("copies asked for", mapper_finding(probes_of(true, false, true), "copy"));
  show("asked for, and does not work", mapper_finding(probes_of(true, false, true), "signal"));
  const Probes probes = {{MapperKind::kUserfaultfd, false, "no privilege"},
                         {MapperKind::kSignal, true, ""}};
  show("cannot serve what was chosen", mapper_finding(probes, "auto", "auto"));
  show("cannot serve 50GiB", mapper_finding(probes, "auto", "50GiB"));
  show("serves 50GiB", mapper_finding({{MapperKind::kUserfaultfd, true, ""}}, "auto", "50GiB"));
}

TEST(CheckDisk, IsWhatItsFileShows) {
  GoldenText golden(golden_file("disk_findings.txt"));
  const auto show = [&](const std::string& heading, const Finding& finding) {
    golden.add(heading, rows_of({finding}));
  };
  show("io_uring works", check_io_uring(""));
  show("io_uring is forbidden", check_io_uring("a filter forbids it"));
  show("rates of the file", check_disk(disk(3.0), std::nullopt));
  swap::DiskProbe probe;
  probe.description = "io_uring";
  probe.points = {
      {2_MiB, 16, {2.5e9, 2e9, 3e9}, {1.5e9, 1e9, 2e9}, {1e9, 1e9, 1e9}, {1.25e9, 1e9, 1e9}}};
  show("rates of now", check_disk(disk(3.0), probe));
  show("slow", check_disk(disk(0.2), std::nullopt));
  auto other = disk(9.0);
  other.facts.is_ram_disk = true;
  show("in memory", check_disk(other, std::nullopt));
  other = disk(3.0);
  other.warnings = {"it rotates"};
  show("with a warning of its own", check_disk(other, std::nullopt));
  show("a working folder", check_working_folder("/work", true));
  show("a working folder without times of birth", check_working_folder("/home/me", false));
}

TEST(CheckTorch, IsWhatItsFileShows) {
  GoldenText golden(golden_file("torch_findings.txt"));
  const auto show = [&](const std::string& heading, const std::vector<Finding>& findings) {
    golden.add(heading, report_text(findings));
  };
  show("served", {check_torch({"python3", "/t/libtorch_cpu.so", "2.11.0"}, {"2.11"})});
  show("not served", {check_torch({"python3", "/t/libtorch_cpu.so", "2.13.1"}, {"2.11"})});
  show("unknown", {check_torch({"x", "/t", ""}, {"2.11"})});
  show("nothing is served", {check_torch({"x", "/t", "2.11.0"}, {})});
  // The set-up keeps each LibTorch that it has ever fetched.
  const FoundTorch served{"the set-up", "/a", "2.11.0"};
  const FoundTorch other{"the set-up", "/b", "2.13.1"};
  show("one of two of the set-up is served", check_installed_torches({served, other}, {"2.11"}));
  show("none of the set-up is served", check_installed_torches({other}, {"2.11"}));
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
