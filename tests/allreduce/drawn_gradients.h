#pragma once

#include <random>

#include "slow_numbers.h"

namespace spillway::allreduce {

/// Numbers of many sizes, so that each order of additions has other bits; one in a hundred is any
/// bits at all: infinite, no number, tiny, or a zero with a sign.
inline Array drawn_gradients(Element element, std::size_t bytes, std::mt19937_64& random) {
  return with_kind(element, [&](auto kind, auto stored) {
    using Number = decltype(stored);
    using Held = decltype(kind.load(stored));
    Array array(bytes);
    for (std::size_t i = 0; i < bytes / sizeof(Number); ++i) {
      const std::uint64_t drawn = random();
      Number number;
      std::memcpy(&number, &drawn, sizeof number);
      if constexpr (std::is_floating_point_v<Held>) {
        const double scale = std::ldexp(1.0, static_cast<int>(drawn % 17) - 8);
        const double mantissa = static_cast<double>(static_cast<std::int64_t>(drawn)) * 0x1p-63;
        if (drawn / 17 % 100 != 0) number = kind.store(static_cast<Held>(mantissa * scale));
      }
      std::memcpy(array.data() + i * sizeof number, &number, sizeof number);
    }
    return array;
  });
}

}  // namespace spillway::allreduce
