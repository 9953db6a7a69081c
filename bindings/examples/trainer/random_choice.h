#pragma once

#include <cstdint>

namespace trainer {

/// A random number that depends on nothing but its arguments. What a training step looks at is
/// chosen by it, so any step can be prepared by any thread, in any order, and after a resume.
inline std::uint64_t random_number(std::uint64_t seed, std::uint64_t step, std::uint64_t stream) {
  // SplitMix64 by Sebastiano Vigna: a counter through a mixing function.
  const auto mixed = [](std::uint64_t state) {
    state += 0x9e3779b97f4a7c15U;
    state = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9U;
    state = (state ^ (state >> 27U)) * 0x94d049bb133111ebU;
    return state ^ (state >> 31U);
  };
  return mixed(mixed(mixed(seed) ^ step) ^ stream);
}

/// A random index below `count`. The bias is below 2^-32 for every data set that fits a disk.
inline std::int64_t random_index(std::int64_t count, std::uint64_t seed, std::uint64_t step,
                                 std::uint64_t stream) {
  return static_cast<std::int64_t>(random_number(seed, step, stream) %
                                   static_cast<std::uint64_t>(count));
}

}  // namespace trainer
