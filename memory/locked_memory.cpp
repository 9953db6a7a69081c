#include "spillway/memory/locked_memory.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernel_file.h"
#include "spillway/memory/address_space.h"

namespace spillway::memory {
namespace {

struct Stretch {
  std::uintptr_t begin;
  std::uintptr_t end;
};

/// Calls `act` for each mapping of this process, in the order of their addresses.
template <typename Act>
void each_mapping(const Act& act) {
  KernelFile maps("/proc/self/maps");
  std::array<char, 8192> text;
  std::size_t kept = 0;  // Of a line that was not all there.
  while (const std::size_t got = maps.read_some({text.data() + kept, text.size() - kept})) {
    const char* const end = text.data() + kept + got;
    char* line = text.data();
    while (char* const line_end = std::find(line, text.data() + kept + got, '\n')) {
      if (line_end == end) break;
      char* dash = nullptr;
      const std::uintptr_t from = std::strtoull(line, &dash, 16);
      act(Stretch{from, std::strtoull(dash + 1, nullptr, 16)});
      line = line_end + 1;
    }
    kept = static_cast<std::size_t>(end - line);
    std::memmove(text.data(), line, kept);
  }
}

/// Calls `act` for the parts of a mapping that are not reserved for tensors: mappings that are
/// alike are one.
template <typename Act>
void each_part(Stretch mapping, const Act& act) {
  while (mapping.begin < mapping.end) {
    const Reservation next = next_reservation(mapping.begin);
    const bool is_near = next.end != 0 && next.begin < mapping.end;
    const std::uintptr_t part_end = is_near ? std::max(next.begin, mapping.begin) : mapping.end;
    if (part_end > mapping.begin) act(Stretch{mapping.begin, part_end});
    mapping.begin = is_near ? next.end : mapping.end;
  }
}

bool may_lock_anything() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
  return syscall(SYS_capget, &header, data.data()) == 0 &&
         (data[0].effective >> CAP_IPC_LOCK & 1U) != 0;
}

/// Zero, or why the kernel would not lock so much.
int reason_against(std::uint64_t bytes) {
  rlimit64 limit{};
  if (syscall(SYS_prlimit64, 0, RLIMIT_MEMLOCK, nullptr, &limit) != 0) return errno;
  if (bytes <= limit.rlim_cur || may_lock_anything()) return 0;
  return limit.rlim_cur == 0 ? EPERM : ENOMEM;
}

}  // namespace

int lock_all_but_reserved(int flags) noexcept {
  constexpr int kKnown = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
  // Nonsense is the kernel's to judge, and what comes later lies elsewhere.
  if ((flags & MCL_CURRENT) == 0 || (flags & ~kKnown) != 0)
    return static_cast<int>(syscall(SYS_mlockall, flags));
  std::uint64_t bytes = 0;
  each_mapping([&](Stretch mapping) {
    each_part(mapping, [&](Stretch part) { bytes += part.end - part.begin; });
  });
  if (const int reason = reason_against(bytes); reason != 0) {
    errno = reason;
    return -1;
  }
  if ((flags & MCL_FUTURE) != 0 && syscall(SYS_mlockall, flags & ~MCL_CURRENT) != 0) return -1;
  const unsigned on_fault = (flags & MCL_ONFAULT) != 0 ? MLOCK_ONFAULT : 0;
  // As with mlockall, what cannot be filled (guard pages, devices) is no failure.
  each_mapping([&](Stretch mapping) {
    each_part(mapping, [&](Stretch part) {
      syscall(SYS_mlock2, part.begin, part.end - part.begin, on_fault);
    });
  });
  return 0;
}

bool is_reservation_locked() noexcept {
  return locked_bytes() >= std::max<std::uint64_t>(reserved_address_space().count() / 2, 1);
}

}  // namespace spillway::memory
