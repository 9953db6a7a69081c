#include "reduction.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>

namespace spillway::emulated {
namespace {

/// Sixteen bits of storage whose arithmetic is that of float, rounded to nearest even.
struct Bfloat16 {
  std::uint16_t bits;

  float value() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
  static Bfloat16 of(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    if (value != value) return {0x7FC0};
    return {static_cast<std::uint16_t>((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16)};
  }
};

struct Float16 {
  std::uint16_t bits;

  float value() const {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1F;
    const std::uint32_t fraction = bits & 0x3FF;
    if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
    // A power of two moves the exponent, subnormal numbers included.
    const float magnitude = std::bit_cast<float>((exponent << 23) | (fraction << 13)) * 0x1p112F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  static Float16 of(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((wide >> 16) & 0x8000);
    const std::uint32_t magnitude = wide & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return {static_cast<std::uint16_t>(sign | 0x7E00)};
    if (magnitude >= 0x477FF000) return {static_cast<std::uint16_t>(sign | 0x7C00)};
    if (magnitude < 0x38800000) {
      // The float unit rounds where the last bit of a subnormal number is.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
      return {
          static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000))};
    }
    const std::uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
    return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000) >> 13))};
  }
};

template <class Value>
auto opened(Value value) {
  if constexpr (requires { value.value(); }) {
    return value.value();
  } else {
    return value;
  }
}

template <class Value, class Number>
Value closed(Number number) {
  if constexpr (requires(Value value) { value.value(); }) {
    return Value::of(static_cast<float>(number));
  } else {
    return static_cast<Value>(number);
  }
}

// Calls `work` with a value of the type.
template <class Work>
void with_type(ncclDataType_t type, Work work) {
  switch (type) {
    case ncclInt8: return work(std::int8_t{});
    case ncclUint8: return work(std::uint8_t{});
    case ncclInt32: return work(std::int32_t{});
    case ncclUint32: return work(std::uint32_t{});
    case ncclInt64: return work(std::int64_t{});
    case ncclUint64: return work(std::uint64_t{});
    case ncclFloat16: return work(Float16{});
    case ncclFloat32: return work(float{});
    case ncclFloat64: return work(double{});
    case ncclBfloat16: return work(Bfloat16{});
  }
  std::abort();  // The caller has asked size_of.
}

template <class Number>
Number combined(Number a, Number b, ncclRedOp_t how) {
  switch (how) {
    case ncclSum:
    case ncclAvg: return static_cast<Number>(a + b);
    case ncclProd: return static_cast<Number>(a * b);
    case ncclMax: return std::max(a, b);
    case ncclMin: return std::min(a, b);
  }
  std::abort();  // The caller has checked it.
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  if (type < ncclInt8 || type > ncclBfloat16) return 0;
  std::size_t bytes = 0;
  with_type(type, [&bytes](auto value) { bytes = sizeof value; });
  return bytes;
}

void combine(void* into, const void* from, std::size_t count, ncclDataType_t type,
             ncclRedOp_t how) {
  with_type(type, [&](auto kind) {
    using Value = decltype(kind);
    auto* to = static_cast<Value*>(into);
    const auto* other = static_cast<const Value*>(from);
    for (std::size_t i = 0; i < count; ++i)
      to[i] = closed<Value>(combined(opened(to[i]), opened(other[i]), how));
  });
}

void divide(void* values, std::size_t count, ncclDataType_t type, int ranks) {
  with_type(type, [&](auto kind) {
    using Value = decltype(kind);
    using Number = decltype(opened(kind));
    auto* all = static_cast<Value*>(values);
    for (std::size_t i = 0; i < count; ++i)
      all[i] = closed<Value>(opened(all[i]) / static_cast<Number>(ranks));
  });
}

}  // namespace spillway::emulated
