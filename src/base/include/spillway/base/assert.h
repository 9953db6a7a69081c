#pragma once

namespace spillway::detail {
/// Prints the broken expectation with its place to stderr and aborts.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);
}  // namespace spillway::detail

/// Ends the process when an expectation of the code about itself is broken. Independent of NDEBUG,
/// which LibTorch's headers force on.
#define SPILLWAY_ASSERT(expression) \
  (static_cast<bool>(expression)    \
       ? static_cast<void>(0)       \
       : ::spillway::detail::assertion_failed(#expression, __FILE__, __LINE__))
