#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "spillway/transport/transport.h"

namespace spillway::transport {

/// Bytes that nobody takes for those of another message.
inline std::vector<std::byte> drawn_bytes(std::size_t count, std::uint64_t seed) {
  std::vector<std::byte> bytes(count);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

inline device::DeviceSpan span_of(std::vector<std::byte>& bytes) {
  return device::host_span(bytes.data(), Bytes(bytes.size()));
}

inline Tag value(std::uint64_t number) { return {Stream::kValues, number}; }

inline void expect_success(const device::Event& event) { EXPECT_EQ(event.wait().error, ""); }

/// A different seed for each message of each pair.
inline std::uint64_t seed_of(Rank from, Rank to, std::uint64_t number) {
  return (number * 64 + from.value()) * 64 + to.value();
}

/// Rank 0 sends to rank 1; others have nothing to do.
template <typename Ranks>
void run_pair(Ranks& ranks, const std::function<void(Transport&)>& sender,
              const std::function<void(Transport&)>& receiver) {
  ranks.run([&](Transport& transport) {
    if (transport.rank() == Rank(0)) sender(transport);
    if (transport.rank() == Rank(1)) receiver(transport);
  });
}

}  // namespace spillway::transport
