#pragma once

#include <cstdint>

namespace spillway {

/// A write past the operators. What the thread sanitizer need not know: it would take a write that
/// waits in its trap for done.
[[gnu::noinline, gnu::no_sanitize("thread")]] inline void put(std::uint64_t& word,
                                                              std::uint64_t value) {
  word = value;
}

}  // namespace spillway
