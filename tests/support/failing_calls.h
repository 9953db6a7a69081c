#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace spillway::swap {

/// A system call that shall fail, as the filter of a container or another file system makes it.
struct FailingCall {
  long number = 0;
  int error = 0;
  int argument = -1;  ///< Only when `bits` are all set in this argument; -1: always.
  std::uint32_t bits = 0;
};

enum class ChildOutcome { kTrue, kFalse, kCannotFilter, kCrashed };

/// Runs `body` in a child process in which these calls fail. What `body` throws counts as false and
/// is printed.
ChildOutcome run_with_failing_calls(const std::vector<FailingCall>& calls,
                                    const std::function<bool()>& body);

/// From now on these calls fail in all threads of this process, in the body of the function above.
/// Returns whether the kernel takes such a filter.
bool fail_calls_from_now_on(const std::vector<FailingCall>& calls);

}  // namespace spillway::swap
