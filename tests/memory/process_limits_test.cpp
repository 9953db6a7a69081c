// What the process limits, locks or forbids itself while tensors have addresses reserved. Each case
// runs in a child of its own: what it does to the process stays.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "spillway/base/error.h"
#include "spillway/memory/address_space.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/memory/kernel_refusal.h"
#include "spillway/memory/locked_memory.h"
#include "spillway/memory/own_limits.h"
#include "support/failing_calls.h"
#include "support/sanitized.h"

namespace spillway::memory {
namespace {

using swap::ChildOutcome;
using swap::run_with_failing_calls;

using Opened = AddressSpace::Opened;

/// A child that has no forbidden call: only its limits are its own.
ChildOutcome in_child(const std::function<bool()>& body) {
  return run_with_failing_calls({{SYS_acct, EPERM}}, body);
}

std::uint64_t status_kib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(key + ":", 0) == 0) return std::stoull(line.substr(key.size() + 1));
  return 0;
}

bool limit_by_the_kernel(int resource, rlim_t bytes) {
  const rlimit64 limit{bytes, bytes};
  return syscall(SYS_prlimit64, 0, resource, &limit, nullptr) == 0;
}

bool is_mapped(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, bytes);
  return true;
}

bool holds(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "%s is not in: %s\n", part.c_str(), text.c_str());
  return false;
}

class ProcessLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "the sanitizer itself cannot go on under such limits";
  }
  static void expect(ChildOutcome outcome) {
    if (outcome == ChildOutcome::kCannotFilter)
      GTEST_SKIP() << "filters of system calls cannot be installed";
    EXPECT_EQ(outcome, ChildOutcome::kTrue);
  }
};

TEST_F(ProcessLimits, ARefusalNamesTheLimitOfAddressSpaceAndItsValue) {
  expect(in_child([] {
    return limit_by_the_kernel(RLIMIT_AS, rlim_t{3} << 30) && !is_mapped(std::size_t{4} << 30) &&
           holds(why_refused(ENOMEM, 4_GiB), "RLIMIT_AS (ulimit -v) is 3.00 GiB");
  }));
}

TEST_F(ProcessLimits, ARefusalNamesTheLimitOfWritableMemoryAndItsValue) {
  expect(in_child([] {
    return limit_by_the_kernel(RLIMIT_DATA, rlim_t{3} << 30) && !is_mapped(std::size_t{4} << 30) &&
           holds(why_refused(ENOMEM, 4_GiB), "RLIMIT_DATA (ulimit -d) is 3.00 GiB");
  }));
}

TEST_F(ProcessLimits, ARefusalBlamesNoLimitThatLeavesRoom) {
  expect(in_child([] {
    return limit_by_the_kernel(RLIMIT_AS, rlim_t{64} << 30) &&
           limit_by_the_kernel(RLIMIT_DATA, rlim_t{64} << 30) &&
           why_refused(ENOMEM, 4_GiB).find("RLIMIT") == std::string::npos;
  }));
}

TEST_F(ProcessLimits, ARefusalNamesAFilterOfSystemCalls) {
  for (const int error : {EPERM, ENOSYS})
    EXPECT_TRUE(holds(why_refused(error, kPageSize), "filter of system calls"));
}

TEST_F(ProcessLimits, AThreadThatCannotBeStartedIsPutDownToTheLimitOfItsStack) {
  expect(in_child([] {
    const std::uint64_t now = status_kib("VmSize") * 1024;
    return limit_by_the_kernel(RLIMIT_AS, now + (1 << 20)) &&
           holds(why_no_thread(), "RLIMIT_AS (ulimit -v) is ");
  }));
}

TEST_F(ProcessLimits, ReservedAddressesCountAsWritableOnlyWhereTheyAreOpen) {
  expect(in_child([] {
    if (!limit_by_the_kernel(RLIMIT_DATA, rlim_t{2} << 30)) return false;
    AddressSpace space(1_TiB, Opened::kAsNeeded, "a test");
    const bool is_open = space.open_until(space.begin() + (std::size_t{1} << 30)) == 0;
    space.begin()[5] = std::byte{1};
    return is_open && space.open_until(space.begin() + (std::size_t{3} << 30)) == ENOMEM &&
           space.open_until(space.begin() + (std::size_t{1} << 30)) == 0;
  }));
}

TEST_F(ProcessLimits, TheLimitThatRefusesAnAddressSpaceToWriteToIsNamed) {
  expect(in_child([] {
    if (!limit_by_the_kernel(RLIMIT_DATA, rlim_t{2} << 30)) return false;
    try {
      const AddressSpace space(3_GiB, Opened::kAtOnce, "a test");
    } catch (const UnsupportedError& error) {
      return holds(error.what(),
                   "3.00 GiB of address space for a test: the limit of writable memory "
                   "RLIMIT_DATA (ulimit -d) is 2.00 GiB") &&
             reserved_address_space() == Bytes();
    }
    return false;
  }));
}

TEST_F(ProcessLimits, OnesOwnLimitBoundsWhatTheProgramTakesItself) {
  for (const int resource : {RLIMIT_AS, RLIMIT_DATA}) {
    expect(in_child([resource] {
      AddressSpace arena(1_TiB, Opened::kAsNeeded, "a test");
      const AddressSpace pool(32_GiB, Opened::kAtOnce, "a test");
      const rlimit wanted{rlim_t{16} << 30, rlim_t{16} << 30};
      rlimit told{};
      return change_own_limit(resource, &wanted, nullptr) == 0 &&
             change_own_limit(resource, nullptr, &told) == 0 && told.rlim_cur == wanted.rlim_cur &&
             told.rlim_max == wanted.rlim_max && is_mapped(std::size_t{8} << 30) &&
             !is_mapped(std::size_t{64} << 30);
    }));
  }
}

TEST_F(ProcessLimits, OnesOwnLimitDoesNotStandInTheWayOfTensors) {
  expect(in_child([] {
    AddressSpace arena(1_TiB, Opened::kAsNeeded, "a test");
    const rlimit wanted{rlim_t{1} << 30, rlim_t{1} << 30};
    if (change_own_limit(RLIMIT_DATA, &wanted, nullptr) != 0) return false;
    rlimit told{};
    return arena.open_until(arena.begin() + (std::size_t{20} << 30)) == 0 &&
           change_own_limit(RLIMIT_DATA, nullptr, &told) == 0 && told.rlim_cur == wanted.rlim_cur &&
           !is_mapped(std::size_t{2} << 30);
  }));
}

TEST_F(ProcessLimits, OnesOwnLimitIsTheKernelsForTheNextProgram) {
  expect(in_child([] {
    const AddressSpace arena(1_TiB, Opened::kAsNeeded, "a test");
    const rlimit wanted{rlim_t{16} << 30, RLIM_INFINITY};
    rlimit64 kernel{};
    if (change_own_limit(RLIMIT_AS, &wanted, nullptr) != 0) return false;
    hand_on_own_limits(false);
    const bool is_handed_on = syscall(SYS_prlimit64, 0, RLIMIT_AS, nullptr, &kernel) == 0 &&
                              kernel.rlim_cur == wanted.rlim_cur;
    hand_on_own_limits(true);
    return is_handed_on && is_mapped(std::size_t{8} << 30);
  }));
}

TEST_F(ProcessLimits, OnesOwnLimitStillJudgesNonsenseAndForeignLimits) {
  expect(in_child([] {
    const rlimit nonsense{2, 1};
    if (change_own_limit(RLIMIT_AS, &nonsense, nullptr) != -1 || errno != EINVAL) return false;
    // What somebody else sets in between holds as it is.
    const rlimit wanted{rlim_t{16} << 30, rlim_t{16} << 30};
    rlimit told{};
    return change_own_limit(RLIMIT_AS, &wanted, nullptr) == 0 &&
           limit_by_the_kernel(RLIMIT_AS, rlim_t{8} << 30) &&
           change_own_limit(RLIMIT_AS, nullptr, &told) == 0 && told.rlim_cur == rlim_t{8} << 30;
  }));
}

TEST_F(ProcessLimits, LockingAllMemoryLeavesOutWhatIsReserved) {
  for (const int flags : {MCL_CURRENT, MCL_CURRENT | MCL_FUTURE, MCL_CURRENT | MCL_ONFAULT}) {
    expect(in_child([flags] {
      const AddressSpace arena(1_TiB, Opened::kAsNeeded, "a test");
      const AddressSpace pool(64_GiB, Opened::kAtOnce, "a test");
      const std::uint64_t before = status_kib("VmRSS");
      if (lock_all_but_reserved(flags) != 0) {
        // Where locked memory is limited it is refused, as the kernel would.
        return errno == ENOMEM || errno == EPERM;
      }
      const std::uint64_t locked = status_kib("VmLck");
      const std::uint64_t more = status_kib("VmRSS") - before;
      std::fprintf(stderr, "locked %llu KiB, %llu more\n", static_cast<unsigned long long>(locked),
                   static_cast<unsigned long long>(more));
      return locked > 1024 && locked < (1U << 20) && more < (1U << 20);
    }));
  }
}

TEST_F(ProcessLimits, LockingAllMemoryJudgesFlagsAsTheKernelDoes) {
  expect(in_child([] { return lock_all_but_reserved(1024) == -1 && errno == EINVAL; }));
}

TEST_F(ProcessLimits, AForbiddenMadviseIsToldByEachProbe) {
  expect(run_with_failing_calls({{SYS_madvise, EPERM}}, [] {
    for (const MapperProbe& probe : probe_mappers()) {
      if (probe.is_viable) return false;
      const bool is_named = probe.reason.find("madvise(") != std::string::npos;
      const bool is_other = probe.reason.find("userfaultfd") != std::string::npos;
      if (!is_named && !is_other) return holds(probe.reason, "madvise(");
    }
    return true;
  }));
}

TEST_F(ProcessLimits, WithoutMremapCopyServesPagesAndSignalIsRefusedByName) {
  expect(run_with_failing_calls({{SYS_mremap, EPERM}}, [] {
    const auto probes = probe_mappers();
    return holds(probes[2].reason, "mremap") && !probes[2].is_viable && probes[3].is_viable;
  }));
}

}  // namespace
}  // namespace spillway::memory
