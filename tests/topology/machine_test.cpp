#include "spillway/topology/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "fake_tree.h"

namespace spillway::topology {
namespace {

constexpr const char* kUnlimitedV1 = "9223372036854771712\n";

Machine discover(const FakeTree& tree, const std::string& processors = "core:1 pu:1") {
  return discover_machine({tree.root(), processors});
}

TEST(DiscoverMachine, LeavesEverythingUnknownInAnEmptyTree) {
  FakeTree tree;
  const Machine machine = discover(tree);
  EXPECT_EQ(machine.memory.total, std::nullopt);
  EXPECT_EQ(machine.memory.available, std::nullopt);
  EXPECT_TRUE(machine.memory.limits.empty());
  EXPECT_EQ(machine.limits.address_space_bytes, std::nullopt);
  EXPECT_EQ(machine.kernel.release, std::nullopt);
  EXPECT_EQ(machine.kernel.overcommit_mode, std::nullopt);
  EXPECT_EQ(machine.kernel.mappings_max, std::nullopt);
  EXPECT_EQ(machine.processors.quota, std::nullopt);
  EXPECT_TRUE(machine.gpus.empty());
  EXPECT_FALSE(usable_memory(machine.memory).has_value());
}

TEST(DiscoverMachine, CountsCoresThreadsAndNodes) {
  FakeTree tree;
  const Machine machine = discover(tree, "numa:2(memory=1073741824) core:4 pu:2");
  EXPECT_EQ(machine.processors.cores, 8u);
  EXPECT_EQ(machine.processors.threads, 16u);
  ASSERT_EQ(machine.processors.numa_nodes.size(), 2u);
  EXPECT_EQ(machine.processors.numa_nodes[1].index, 1u);
  EXPECT_EQ(machine.processors.numa_nodes[1].cores, 4u);
  EXPECT_EQ(machine.processors.numa_nodes[0].memory, 1_GiB);
}

TEST(DiscoverMachine, KnowsNoProcessorsFromANonsensicalDescription) {
  FakeTree tree;
  EXPECT_EQ(discover(tree, "nonsense").processors.cores, std::nullopt);
}

TEST(DiscoverMachine, FindsTheProcessorsOfThisMachine) {
  const Machine machine = discover_machine();
  ASSERT_TRUE(machine.processors.threads.has_value());
  EXPECT_GE(*machine.processors.threads, 1u);
  EXPECT_TRUE(machine.memory.total.has_value());
}

TEST(DiscoverMachine, ReadsMemoryInfo) {
  FakeTree tree;
  tree.write(
      "/proc/meminfo",
      "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\nSwapTotal: 0 kB\n");
  const Memory memory = discover(tree).memory;
  EXPECT_EQ(memory.total, 16_MiB);
  EXPECT_EQ(memory.available, 8_MiB);
}

TEST(DiscoverMachine, ReadsSoftLimits) {
  FakeTree tree;
  tree.write("/proc/self/limits",
             "Limit                     Soft Limit           Hard Limit           Units     \n"
             "Max processes             95984                95984                processes \n"
             "Max locked memory         8388608              unlimited            bytes     \n"
             "Max address space         unlimited            unlimited            bytes     \n");
  const ProcessLimits limits = discover(tree).limits;
  EXPECT_EQ(limits.locked_bytes, 8388608u);
  EXPECT_EQ(limits.address_space_bytes, kUnlimited);
}

TEST(DiscoverMachine, ReadsWhatTheProcessTakesOfItsLimits) {
  FakeTree tree;
  tree.write("/proc/self/limits",
             "Max data size             1073741824           unlimited            bytes     \n");
  tree.write("/proc/self/statm", "1000 500 100 1 0 700 0\n");
  const Machine machine = discover(tree);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(machine.limits.data_bytes, 1073741824u);
  EXPECT_EQ(machine.use.address_space_bytes, 1000 * page);
  EXPECT_EQ(machine.use.data_bytes, 700 * page);
}

/// Two nodes of 16 GiB each: 12 and 3 GiB of them can be had.
class MemoryNodes : public testing::Test {
 protected:
  void SetUp() override {
    tree_.write("/proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 15728640 kB\n");
    tree_.write("/sys/devices/system/node/has_memory", "0-1\n");
    describe(0, 11 << 20);
    describe(1, 2 << 20);
  }
  void describe(int node, long free_kib) {
    const std::string name = "Node " + std::to_string(node) + " ";
    tree_.write("/sys/devices/system/node/node" + std::to_string(node) + "/meminfo",
                name + "MemTotal:       16777216 kB\n" + name +
                    "MemFree:  " + std::to_string(free_kib) + " kB\n" + name +
                    "Active(anon):   4194304 kB\n" + name + "Active(file):    262144 kB\n" + name +
                    "Inactive(file):   262144 kB\n" + name + "SReclaimable:   524288 kB\n");
  }
  void allow(const std::string& nodes) {
    tree_.write("/proc/self/status",
                "Name: x\nMems_allowed:\t3\nMems_allowed_list:\t" + nodes + "\n");
  }
  std::optional<UsableMemory> usable(const std::string& policy = {}) {
    return usable_memory(discover_machine({tree_.root(), "core:1 pu:1", policy}).memory);
  }
  FakeTree tree_;
};

TEST_F(MemoryNodes, LimitNothingWhereAllMayBeUsed) {
  allow("0-1");
  EXPECT_EQ(usable()->bytes, 15_GiB);
  EXPECT_EQ(usable("0,1")->bytes, 15_GiB);
  allow("0-63");  // A kernel allows nodes that are not there.
  EXPECT_EQ(usable()->bytes, 15_GiB);
}

TEST_F(MemoryNodes, OfACpusetAreAllThatCounts) {
  allow("1");
  EXPECT_EQ(usable()->bytes, 3_GiB);
  EXPECT_EQ(usable()->limited_by, "Mems_allowed of /proc/self/status, NUMA nodes 1");
  allow("0");
  EXPECT_EQ(usable()->bytes, 12_GiB);
}

TEST_F(MemoryNodes, OfABindingPolicyAreAllThatCounts) {
  allow("0-1");
  EXPECT_EQ(usable("1")->bytes, 3_GiB);
  EXPECT_EQ(usable("1")->limited_by, "the memory policy (numactl --membind), NUMA nodes 1");
  allow("0");
  EXPECT_EQ(usable("1")->bytes, 12_GiB);  // The cpuset goes before the policy.
}

TEST_F(MemoryNodes, AreLeftAloneWhereTooLittleIsKnown) {
  EXPECT_EQ(usable("1")->bytes, 15_GiB);
  allow("nonsense");
  EXPECT_EQ(usable()->bytes, 15_GiB);
}

TEST(DiscoverMachine, ReadsHowTheKernelIsConfigured) {
  FakeTree tree;
  tree.write("/proc/sys/kernel/osrelease", "6.18.0\n");
  tree.write("/proc/sys/vm/overcommit_memory", "2\n");
  tree.write("/proc/sys/vm/max_map_count", "65530\n");
  tree.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const Kernel kernel = discover(tree).kernel;
  EXPECT_EQ(kernel.release, "6.18.0");
  EXPECT_EQ(kernel.overcommit_mode, 2);
  EXPECT_EQ(kernel.huge_pages, "madvise");
  EXPECT_EQ(kernel.mappings_max, 65530u);
}

TEST(DiscoverMachine, FindsGpusByBusAddress) {
  FakeTree tree;
  tree.write("/proc/driver/nvidia/gpus/0000:41:00.0/information", "Model: \t\t Second\n");
  tree.write("/proc/driver/nvidia/gpus/0000:01:00.0/information",
             "Model: \t\t First GPU\nIRQ: 1\n");
  const auto gpus = discover(tree).gpus;
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].name, "First GPU");
  EXPECT_EQ(gpus[1].bus_address, "0000:41:00.0");
}

TEST(DiscoverGpus, TellsThoseWithoutADriverFromNone) {
  FakeTree tree;
  EXPECT_FALSE(discover_gpus({tree.root(), ""}));
  const auto plug_in = [&](const std::string& address, const std::string& vendor,
                           const std::string& kind) {
    const std::string folder = "/sys/bus/pci/devices/" + address;
    tree.write(folder + "/vendor", vendor + "\n");
    tree.write(folder + "/class", kind + "\n");
    tree.write(folder + "/device", "0x2330\n");
  };
  plug_in("0000:00:02.0", "0x8086", "0x030000");  // A display of another vendor,
  plug_in("0000:05:00.0", "0x10de", "0x068000");  // and a switch of NVIDIA's.
  EXPECT_THAT(discover_gpus({tree.root(), ""}), testing::Optional(testing::IsEmpty()));
  plug_in("0000:3b:00.0", "0x10de", "0x030200");
  plug_in("0000:5e:00.0", "0x10de", "0x030000");
  tree.write("/proc/driver/nvidia/gpus/0000:5e:00.0/information", "Model: \t\t NVIDIA L4\n");
  const auto gpus = discover(tree).gpus;
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].name, "NVIDIA L4");
  EXPECT_TRUE(gpus[0].has_driver);
  EXPECT_EQ(gpus[1].name, "NVIDIA 0x2330");
  EXPECT_EQ(gpus[1].bus_address, "0000:3b:00.0");
  EXPECT_FALSE(gpus[1].has_driver);
}

class ControlGroups : public testing::Test {
 protected:
  void mount_v2(const std::string& shown = "/") {
    tree_.write(
        "/proc/self/mountinfo",
        "30 23 0:26 " + shown + " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  void limit_v2(const std::string& group, const std::string& limit, const std::string& used,
                const std::string& statistics = "anon 1\n") {
    const std::string folder = "/sys/fs/cgroup" + group;
    tree_.write(folder + "/memory.max", limit + "\n");
    tree_.write(folder + "/memory.current", used + "\n");
    tree_.write(folder + "/memory.stat", statistics);
  }
  FakeTree tree_;
};

TEST_F(ControlGroups, AreReadOnTheWholeWayUp) {
  tree_.write("/proc/self/cgroup", "0::/user.slice/job\n");
  mount_v2();
  limit_v2("/user.slice/job", "max", "1000");
  limit_v2("/user.slice", "4294967296", "1073741824");
  const auto limits = discover(tree_).memory.limits;
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_EQ(limits[0].where, "/sys/fs/cgroup/user.slice/memory.max");
  EXPECT_EQ(limits[0].limit, 4_GiB);
  EXPECT_EQ(limits[0].used, 1_GiB);
}

TEST_F(ControlGroups, ComeInnermostFirst) {
  tree_.write("/proc/self/cgroup", "0::/a/b\n");
  mount_v2();
  limit_v2("/a/b", "1073741824", "0");
  limit_v2("/a", "2147483648", "0");
  const auto limits = discover(tree_).memory.limits;
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_EQ(limits[0].limit, 1_GiB);
  EXPECT_EQ(limits[1].limit, 2_GiB);
}

TEST_F(ControlGroups, DoNotCountFilePagesThatCanBeDropped) {
  tree_.write("/proc/self/cgroup", "0::/a\n");
  mount_v2();
  limit_v2("/a", "4294967296", "3221225472", "anon 1\ninactive_file 2147483648\nactive_file 5\n");
  EXPECT_EQ(discover(tree_).memory.limits.at(0).used, 1_GiB);
}

TEST_F(ControlGroups, IncludeTheThrottlingLimit) {
  tree_.write("/proc/self/cgroup", "0::/a\n");
  mount_v2();
  limit_v2("/a", "max", "0");
  tree_.write("/sys/fs/cgroup/a/memory.high", "1073741824\n");
  const auto limits = discover(tree_).memory.limits;
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_EQ(limits[0].where, "/sys/fs/cgroup/a/memory.high");
}

TEST_F(ControlGroups, OfVersionOneAreRead) {
  tree_.write("/proc/self/cgroup", "9:cpuset:/\n4:memory:/jobs/1\n0::/\n");
  tree_.write("/proc/self/mountinfo",
              "33 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
              "34 24 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
  const std::string mount = "/sys/fs/cgroup/memory";
  tree_.write(mount + "/jobs/1/memory.limit_in_bytes", kUnlimitedV1);
  tree_.write(mount + "/jobs/memory.limit_in_bytes", "2147483648\n");
  tree_.write(mount + "/jobs/memory.usage_in_bytes", "1610612736\n");
  tree_.write(mount + "/jobs/memory.stat", "inactive_file 1\ntotal_inactive_file 536870912\n");
  tree_.write(mount + "/memory.limit_in_bytes", kUnlimitedV1);
  const auto limits = discover(tree_).memory.limits;
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_EQ(limits[0].where, mount + "/jobs/memory.limit_in_bytes");
  EXPECT_EQ(limits[0].used, 1_GiB);
}

// A container without a namespace of its own sees the path that the host uses, and a mount that
// shows only the container's part.
TEST_F(ControlGroups, OfAContainerLieAtTheMountPoint) {
  tree_.write("/proc/self/cgroup", "0::/docker/abc/inner\n");
  mount_v2("/docker/abc");
  limit_v2("", "2147483648", "0");
  limit_v2("/inner", "1073741824", "0");
  const auto limits = discover(tree_).memory.limits;
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_EQ(limits[0].where, "/sys/fs/cgroup/inner/memory.max");
  EXPECT_EQ(limits[1].where, "/sys/fs/cgroup/memory.max");
}

TEST_F(ControlGroups, OfAContainerWithALongerNameLieAtTheMountPoint) {
  tree_.write("/proc/self/cgroup", "0::/docker/abc/inner\n");
  mount_v2("/docker/ab");
  limit_v2("", "2147483648", "0");
  limit_v2("/inner", "1073741824", "0");
  const auto limits = discover(tree_).memory.limits;
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_EQ(limits[0].where, "/sys/fs/cgroup/memory.max");
}

TEST_F(ControlGroups, OutsideOfTheNamespaceCountAsTheMountPoint) {
  tree_.write("/proc/self/cgroup", "0::/../../elsewhere\n");
  mount_v2();
  limit_v2("", "2147483648", "0");
  EXPECT_EQ(discover(tree_).memory.limits.at(0).where, "/sys/fs/cgroup/memory.max");
}

TEST_F(ControlGroups, LimitTheProcessorsTime) {
  tree_.write("/proc/self/cgroup", "0::/a/b\n");
  mount_v2();
  tree_.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  tree_.write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(discover(tree_).processors.quota, 1.5);
}

TEST_F(ControlGroups, OfVersionOneLimitTheProcessorsTime) {
  tree_.write("/proc/self/cgroup", "2:cpu,cpuacct:/\n");
  tree_.write("/proc/self/mountinfo",
              "33 24 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  tree_.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  tree_.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(discover(tree_).processors.quota, std::nullopt);
  tree_.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(discover(tree_).processors.quota, 2.0);
}

TEST(UsableProcessors, AreThoseOfTheBindingAndNoMoreThanTheQuota) {
  Processors processors;
  EXPECT_EQ(usable_processors(processors), 1.0);
  processors.threads = 64;
  EXPECT_EQ(usable_processors(processors), 64.0);
  processors.bound = 4;
  EXPECT_EQ(usable_processors(processors), 4.0);
  processors.quota = 1.5;
  EXPECT_EQ(usable_processors(processors), 1.5);
  processors.bound = 1;
  EXPECT_EQ(usable_processors(processors), 1.0);
}

TEST(UsableProcessors, AreSharedAmongRanksUnlessEachIsBoundToItsOwn) {
  Processors processors;
  processors.threads = processors.bound = 64;
  EXPECT_EQ(usable_processors(processors, 8), 8.0);
  processors.bound = 4;
  EXPECT_EQ(usable_processors(processors, 8), 4.0);
  processors.quota = 16.0;
  EXPECT_EQ(usable_processors(processors, 8), 2.0);
}

TEST(UsableProcessors, AreCountedWhereTheProcessIsBound) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  std::size_t first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const Machine bound = discover_machine();
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(bound.processors.bound, 1U);
  EXPECT_EQ(discover_machine().processors.bound, static_cast<unsigned>(CPU_COUNT(&before)));
}

TEST(UsableMemory, IsTheSmallestOfWhatIsLeft) {
  Memory memory;
  memory.available = 10_GiB;
  EXPECT_EQ(usable_memory(memory)->bytes, 10_GiB);
  EXPECT_EQ(usable_memory(memory)->limited_by, "available memory");
  memory.limits = {{"inner", 8_GiB, 1_GiB}, {"outer", 16_GiB, 10_GiB}};
  EXPECT_EQ(usable_memory(memory)->bytes, 6_GiB);
  EXPECT_EQ(usable_memory(memory)->limited_by, "outer");
}

TEST(UsableMemory, IsZeroNotHugeWhenALimitIsExceeded) {
  Memory memory;
  memory.available = 10_GiB;
  memory.limits = {{"tight", 1_GiB, 2_GiB}};
  EXPECT_EQ(usable_memory(memory)->bytes, 0_B);
}

}  // namespace
}  // namespace spillway::topology
