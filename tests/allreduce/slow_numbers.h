#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "spillway/allreduce/sum.h"

namespace spillway::allreduce {

/// One element after another, as slowly and as plainly as can be: what the library is compared
/// with.
using Array = std::vector<std::byte>;

/// Floats of 16 bits, by their definition: `kBits` of mantissa, and least exponent `kLeast`.
template <int kBits, int kLeast>
struct SlowFloat {
  static constexpr std::uint32_t kOne = 1u << kBits;
  static constexpr std::uint32_t kInfinity = 0x7FFFu / kOne * kOne;

  static float load(std::uint16_t stored) {
    const std::uint32_t magnitude = stored & 0x7FFFu;
    const auto exponent = static_cast<int>(magnitude / kOne);
    const std::uint32_t mantissa = magnitude % kOne;
    double value = exponent == 0 ? std::ldexp(mantissa, kLeast - kBits)
                                 : std::ldexp(kOne + mantissa, exponent - 1 + kLeast - kBits);
    if (magnitude >= kInfinity)
      value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                            : std::numeric_limits<double>::quiet_NaN();
    return static_cast<float>((stored & 0x8000u) != 0 ? -value : value);
  }

  static std::uint16_t store(float value) {
    const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0;
    const double size = std::fabs(static_cast<double>(value));
    std::uint32_t magnitude = 0;
    if (std::isnan(value)) {
      magnitude = kInfinity + kOne / 2;
    } else if (std::isinf(value)) {
      magnitude = kInfinity;
    } else if (size > 0) {
      const int exponent = std::max(std::ilogb(size), kLeast);
      const double units = std::nearbyint(std::ldexp(size, kBits - exponent));
      magnitude =
          static_cast<std::uint32_t>(exponent - kLeast) * kOne + static_cast<std::uint32_t>(units);
      magnitude = std::min(magnitude, kInfinity);
    }
    return static_cast<std::uint16_t>(sign | magnitude);
  }
};
using SlowHalf = SlowFloat<10, -14>;
using SlowBfloat = SlowFloat<7, -126>;

template <typename Number>
struct SlowWhole {
  static Number load(Number stored) { return stored; }
  static Number store(Number value) { return value; }
};

/// Calls change(kind, number that lies in memory) with the kind of an element's numbers.
template <typename Visit>
auto with_kind(Element element, const Visit& visit) {
  switch (element) {
    case Element::kFloat16: return visit(SlowHalf(), std::uint16_t());
    case Element::kBfloat16: return visit(SlowBfloat(), std::uint16_t());
    case Element::kFloat64:
    case Element::kComplex128: return visit(SlowWhole<double>(), double());
    case Element::kInt32: return visit(SlowWhole<std::uint32_t>(), std::uint32_t());
    case Element::kInt64: return visit(SlowWhole<std::uint64_t>(), std::uint64_t());
    default: return visit(SlowWhole<float>(), float());
  }
}

template <typename Number>
Number number_at(const Array& array, std::size_t i) {
  Number number;
  std::memcpy(&number, array.data() + i * sizeof number, sizeof number);
  return number;
}

inline Array slow_sum(Element element, const Array& a, const Array& b) {
  return with_kind(element, [&](auto kind, auto stored) {
    using Number = decltype(stored);
    Array sum(a.size());
    for (std::size_t i = 0; i < a.size() / sizeof(Number); ++i) {
      const Number one =
          kind.store(kind.load(number_at<Number>(a, i)) + kind.load(number_at<Number>(b, i)));
      std::memcpy(sum.data() + i * sizeof one, &one, sizeof one);
    }
    return sum;
  });
}

inline Array slow_product(Element element, const Array& a, double factor) {
  return with_kind(element, [&](auto kind, auto stored) {
    using Number = decltype(stored);
    Array product(a.size());
    for (std::size_t i = 0; i < a.size() / sizeof(Number); ++i) {
      const auto value = kind.load(number_at<Number>(a, i));
      using Held = std::remove_const_t<decltype(value)>;
      const Number one = kind.store(static_cast<Held>(value * static_cast<Held>(factor)));
      std::memcpy(product.data() + i * sizeof one, &one, sizeof one);
    }
    return product;
  });
}

/// The same bits, or numbers that are none on both sides.
inline bool same_numbers(Element element, const Array& a, const Array& b) {
  return with_kind(element, [&](auto kind, auto stored) {
    using Number = decltype(stored);
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size() / sizeof(Number); ++i) {
      const Number one = number_at<Number>(a, i);
      const Number other = number_at<Number>(b, i);
      if (std::memcmp(&one, &other, sizeof one) == 0) continue;
      const auto value = kind.load(one);
      const auto second = kind.load(other);
      if (value == value || second == second) return false;
    }
    return true;
  });
}

inline constexpr Element kElements[] = {
    Element::kFloat32,   Element::kFloat64,    Element::kFloat16, Element::kBfloat16,
    Element::kComplex64, Element::kComplex128, Element::kInt32,   Element::kInt64};

}  // namespace spillway::allreduce
