#include "spillway/memory/own_limits.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "spillway/memory/address_space.h"

namespace spillway::memory {
namespace {

// How far our own calls may raise a limit above what was reserved when it was set: pages that are
// staged, frames that count at two places for a moment.
constexpr std::uint64_t kMargin = std::uint64_t{1} << 30;
// At a time.
constexpr std::uint64_t kRaise = std::uint64_t{16} << 20;

struct OwnLimit {
  const int resource;
  std::atomic<bool> is_set{false};
  std::atomic<std::uint64_t> asked_soft{0};
  std::atomic<std::uint64_t> asked_hard{0};
  std::atomic<std::uint64_t> kernel_hard{0};
};
std::array<OwnLimit, 2> own_limits{{{.resource = RLIMIT_AS}, {.resource = RLIMIT_DATA}}};

// A child of vfork shares our memory but has limits of its own, and nothing of it may be noted
// here.
std::atomic<pid_t> owner{getpid()};
const int follows_forks = pthread_atfork(nullptr, nullptr, [] { owner.store(getpid()); });

OwnLimit* own_limit_of(int resource) {
  for (OwnLimit& limit : own_limits)
    if (limit.resource == resource) return &limit;
  return nullptr;
}

/// By number, as the functions of the C library lead here.
int call_kernel(int resource, const rlimit64* wanted, rlimit64* before) {
  return static_cast<int>(syscall(SYS_prlimit64, 0, resource, wanted, before));
}

std::uint64_t added(std::uint64_t limit, std::uint64_t more) {
  return limit > RLIM64_INFINITY - more ? RLIM64_INFINITY : limit + more;
}

/// What counts against a limit and is not the program's.
std::uint64_t ours(int resource) {
  return resource == RLIMIT_AS ? reserved_address_space().count()
                               : writable_address_space().count();
}

/// Whether the kernel still has the limit as it was set here, and not one that somebody else has
/// set since.
bool is_in_force(const OwnLimit& limit, const rlimit64& kernel) {
  return limit.is_set.load() && limit.kernel_hard.load() == kernel.rlim_max;
}

}  // namespace

int change_own_limit(int resource, const rlimit* wanted, rlimit* told) noexcept {
  rlimit64 now{};
  OwnLimit* const own = owner.load() == getpid() ? own_limit_of(resource) : nullptr;
  if (own == nullptr) {
    const rlimit64 plain =
        wanted == nullptr ? rlimit64{} : rlimit64{wanted->rlim_cur, wanted->rlim_max};
    if (call_kernel(resource, wanted == nullptr ? nullptr : &plain, &now) != 0) return -1;
    if (told != nullptr) *told = {now.rlim_cur, now.rlim_max};
    return 0;
  }
  if (call_kernel(resource, nullptr, &now) != 0) return -1;
  const bool is_known = is_in_force(*own, now);
  const rlimit before = is_known ? rlimit{own->asked_soft.load(), own->asked_hard.load()}
                                 : rlimit{now.rlim_cur, now.rlim_max};
  if (wanted != nullptr) {
    if (wanted->rlim_cur > wanted->rlim_max) {
      errno = EINVAL;
      return -1;
    }
    rlimit64 given{added(wanted->rlim_cur, ours(resource)),
                   added(wanted->rlim_max, reserved_address_space().count() + kMargin)};
    // Nobody but root may go beyond the hard limit, and the program has not.
    if (wanted->rlim_max <= before.rlim_max)
      given.rlim_max = std::min(given.rlim_max, now.rlim_max);
    given.rlim_cur = std::min(given.rlim_cur, given.rlim_max);
    if (call_kernel(resource, &given, nullptr) != 0) return -1;
    own->asked_soft.store(wanted->rlim_cur);
    own->asked_hard.store(wanted->rlim_max);
    own->kernel_hard.store(given.rlim_max);
    own->is_set.store(true);
  }
  if (told != nullptr) *told = before;
  return 0;
}

void hand_on_own_limits(bool is_over) noexcept {
  const int error = errno;
  for (OwnLimit& limit : own_limits) {
    rlimit64 kernel{};
    if (!limit.is_set.load() || call_kernel(limit.resource, nullptr, &kernel) != 0) continue;
    // The hard limit stays until the other program is there: it could not be raised again.
    if (!is_in_force(limit, kernel)) continue;
    const std::uint64_t soft = limit.asked_soft.load();
    kernel.rlim_cur = is_over ? std::min(added(soft, ours(limit.resource)), kernel.rlim_max) : soft;
    call_kernel(limit.resource, &kernel, nullptr);
  }
  errno = error;
}

void follow_writable(std::ptrdiff_t bytes) noexcept {
  const OwnLimit& limit = *own_limit_of(RLIMIT_DATA);
  if (!limit.is_set.load(std::memory_order_relaxed)) return;
  const int error = errno;
  rlimit64 kernel{};
  if (call_kernel(limit.resource, nullptr, &kernel) == 0 && is_in_force(limit, kernel) &&
      kernel.rlim_cur != RLIM64_INFINITY) {
    // Wraps round where it is negative.
    kernel.rlim_cur =
        std::min(kernel.rlim_cur + static_cast<std::uint64_t>(bytes), kernel.rlim_max);
    call_kernel(limit.resource, &kernel, nullptr);
  }
  errno = error;
}

bool raise_own_limits(std::size_t bytes) noexcept {
  const int error = errno;
  bool is_raised = false;
  for (const OwnLimit& limit : own_limits) {
    rlimit64 kernel{};
    if (!limit.is_set.load() || call_kernel(limit.resource, nullptr, &kernel) != 0) continue;
    if (!is_in_force(limit, kernel) || kernel.rlim_cur >= kernel.rlim_max) continue;
    kernel.rlim_cur =
        std::min(added(kernel.rlim_cur, std::max<std::uint64_t>(bytes, kRaise)), kernel.rlim_max);
    is_raised |= call_kernel(limit.resource, &kernel, nullptr) == 0;
  }
  errno = error;
  return is_raised;
}

}  // namespace spillway::memory
