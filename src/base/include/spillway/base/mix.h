#pragma once

#include <cstdint>

namespace spillway {

/// Mixes a number into a hash. Order matters. Files hold such hashes: it stays as it is.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93ULL;
  return hash ^ (hash >> 29);
}

}  // namespace spillway
