#pragma once

namespace spillway {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

/// How often a test of random inputs tries. Sanitizers make it some ten times slower, and look for
/// other faults than those that take many tries.
template <typename Count>
constexpr Count tries(Count plain, Count sanitized) {
  return kIsSanitized ? sanitized : plain;
}

}  // namespace spillway
