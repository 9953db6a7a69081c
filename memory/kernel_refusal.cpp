#include "spillway/memory/kernel_refusal.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "kernel_file.h"
#include "spillway/base/error.h"
#include "spillway/memory/locked_memory.h"
#include "spillway/memory/own_limits.h"

namespace spillway::memory {
namespace {

constexpr std::size_t kLongestReason = 512;

/// The number at `position` (from 0) of a file of numbers; 0 where it cannot be read.
std::uint64_t number_in(const char* path, int position) {
  std::array<char, 256> text;
  if (KernelFile(path).read_some(text) == 0) return 0;
  char* at = text.data();
  std::uint64_t number = 0;
  for (int i = 0; i <= position; ++i) number = std::strtoull(at, &at, 10);
  return number;
}

std::uint64_t count_mappings() {
  std::array<char, 4096> text;
  KernelFile maps("/proc/self/maps");
  std::uint64_t lines = 0;
  while (const std::size_t size = maps.read_some(text))
    lines += static_cast<std::uint64_t>(std::count(text.data(), text.data() + size, '\n'));
  return lines;
}

/// A limit as the kernel applies it; RLIM_INFINITY where there is none.
std::uint64_t applied_limit(int resource) {
  rlimit64 limit{RLIM64_INFINITY, RLIM64_INFINITY};
  if (syscall(SYS_prlimit64, 0, resource, nullptr, &limit) != 0) return RLIM64_INFINITY;
  return limit.rlim_cur;
}

/// A limit as the program has set it. The kernel's may be larger, by what is reserved for tensors.
Bytes told_limit(int resource) {
  rlimit limit{};
  return Bytes(change_own_limit(resource, nullptr, &limit) == 0 ? limit.rlim_cur : 0);
}

struct Limit {
  int resource;
  const char* text;  ///< With a place for its value.
};
constexpr Limit kAddressSpace{RLIMIT_AS,
                              "the address-space limit RLIMIT_AS (ulimit -v) is %s; lift it with "
                              "`ulimit -v unlimited`, or do not set it"};
constexpr Limit kData{RLIMIT_DATA,
                      "the limit of writable memory RLIMIT_DATA (ulimit -d) is %s; lift it with "
                      "`ulimit -d unlimited`, or do not set it"};
constexpr Limit kLocked{
    RLIMIT_MEMLOCK, "the program locks all of its memory (mlockall), and the limit of locked "
                    "memory RLIMIT_MEMLOCK (ulimit -l) is %s; lift it with `ulimit -l unlimited`"};

bool tell_if_used_up(const Limit& limit, std::uint64_t used, Bytes wanted, std::span<char> text) {
  // The call may have asked for a little more than its caller knows of: guard pages, tables.
  constexpr std::uint64_t kSlack = std::uint64_t{64} << 10;
  const std::uint64_t most = applied_limit(limit.resource);
  if (most == RLIM64_INFINITY || used + wanted.count() + kSlack <= most) return false;
  std::snprintf(text.data(), text.size(), limit.text,
                to_string(told_limit(limit.resource)).c_str());
  return true;
}

bool tell_limit_of_memory(Bytes wanted, std::span<char> text) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (tell_if_used_up(kAddressSpace, number_in("/proc/self/statm", 0) * page, wanted, text))
    return true;
  return tell_if_used_up(kData, number_in("/proc/self/statm", 5) * page, wanted, text);
}

bool tell_limit_of_mappings(std::span<char> text) {
  // A call that splits a mapping needs two more.
  const std::uint64_t most = number_in("/proc/sys/vm/max_map_count", 0);
  if (most == 0 || count_mappings() + 3 < most) return false;
  std::snprintf(text.data(), text.size(),
                "the process has as many mappings as vm.max_map_count allows, %llu; run `sysctl "
                "vm.max_map_count=%llu`",
                static_cast<unsigned long long>(most), static_cast<unsigned long long>(4 * most));
  return true;
}

bool tell_whose_fault(int error, Bytes wanted, std::span<char> text) {
  switch (error) {
    case ENOMEM:
      if (tell_limit_of_memory(wanted, text) || tell_limit_of_mappings(text)) return true;
      if (number_in("/proc/sys/vm/overcommit_memory", 0) != 2) return false;
      std::snprintf(text.data(), text.size(),
                    "the kernel counts reservations (vm.overcommit_memory=2); run `sysctl "
                    "vm.overcommit_memory=0`");
      return true;
    case EAGAIN: {
      const std::uint64_t locked = locked_bytes();
      return locked > 0 && tell_if_used_up(kLocked, locked, wanted, text);
    }
    case EEXIST:  // The kernel has filled what only frames may fill.
      if (!is_reservation_locked()) return false;
      std::snprintf(text.data(), text.size(), "%s", kLockedByItself);
      return true;
    case EPERM:
    case EACCES:
    case ENOSYS:
      std::snprintf(
          text.data(), text.size(),
          "%s: a filter of system calls forbids it; in a container allow the call in its seccomp "
          "profile",
          strerrordesc_np(error));
      return true;
    default: return false;
  }
}

}  // namespace

void write_why_refused(int error, Bytes wanted, std::span<char> text) {
  if (tell_whose_fault(error, wanted, text)) return;
  const char* const meaning = strerrordesc_np(error);
  std::snprintf(
      text.data(), text.size(), "%s%s", meaning == nullptr ? "unknown error" : meaning,
      error == ENOMEM ? " (the machine or its memory cgroup has none left; lower the budget)" : "");
}

std::string why_refused(int error, Bytes wanted) {
  std::array<char, kLongestReason> text;
  write_why_refused(error, wanted, text);
  return text.data();
}

std::string why_no_thread() {
  std::array<char, kLongestReason> text;
  // The C library says EAGAIN also where the kernel has refused the stack.
  const std::uint64_t stack = applied_limit(RLIMIT_STACK);
  const Bytes wanted = stack == RLIM64_INFINITY ? 8_MiB : Bytes(stack);
  if (tell_limit_of_memory(wanted, text) || tell_limit_of_mappings(text) ||
      tell_whose_fault(EAGAIN, wanted, text))
    return text.data();
  const std::uint64_t processes = applied_limit(RLIMIT_NPROC);
  const std::string limit = processes == RLIM64_INFINITY ? "unlimited" : std::to_string(processes);
  return "the system starts no more threads: the limit of processes RLIMIT_NPROC (ulimit -u) is " +
         limit + ", and pids.max of the control group counts threads, too";
}

std::shared_ptr<OwnDescriptors> make_own_descriptors() {
  try {
    return std::make_shared<OwnDescriptors>();
  } catch (const std::system_error&) {
    throw UnsupportedError("no thread can be started that keeps files open: {}", why_no_thread());
  }
}

}  // namespace spillway::memory
