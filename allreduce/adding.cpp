#include "adding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "spillway/base/assert.h"

namespace spillway::allreduce {
namespace {

/// A kind of number: what lies in memory, and what is calculated with.
template <typename Number>
struct Whole {
  using Stored = Number;
  using Held = Number;
  static Held load(Number stored) { return stored; }
  static Number store(Number held) { return held; }
};

/// `yes` where `value` is `bound` or more, else `no`; both numbers are below 2^31. Without a
/// branch, which would keep loops of it from being vectorised.
std::uint32_t choose(std::uint32_t value, std::uint32_t bound, std::uint32_t yes,
                     std::uint32_t no) {
  const auto below = static_cast<std::int32_t>(value - bound) >> 31;
  const auto mask = static_cast<std::uint32_t>(below);
  return (no & mask) | (yes & ~mask);
}

constexpr std::uint32_t kFloatInfinity = 0x7F800000u;

struct Half {
  using Stored = std::uint16_t;
  using Held = float;

  static float load(std::uint32_t stored) {
    const std::uint32_t magnitude = (stored & 0x7FFFu) << 13;
    // What is below 2^-14 has no leading one: the float adds it, and takes it away exactly.
    const float tiny =
        std::bit_cast<float>(magnitude + 0x38800000u) - std::bit_cast<float>(0x38800000u);
    std::uint32_t bits = magnitude + 0x38000000u;
    bits = choose(magnitude, 0x0F800000u, magnitude + 0x70000000u, bits);
    bits = choose(magnitude, 0x00800000u, bits, std::bit_cast<std::uint32_t>(tiny));
    return std::bit_cast<float>(bits | (stored & 0x8000u) << 16);
  }

  static std::uint32_t store(float held) {
    const auto bits = std::bit_cast<std::uint32_t>(held);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    const std::uint32_t normal = (magnitude + 0xC8000FFFu + (magnitude >> 13 & 1)) >> 13;
    // The last place of a sum with 1/2 is that of the smallest halves, and the sum is rounded to
    // it.
    const std::uint32_t tiny =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
    std::uint32_t half = choose(magnitude, 0x38800000u, normal, tiny);
    half = choose(magnitude, 0x47800000u, 0x7C00u, half);
    half = choose(magnitude, kFloatInfinity + 1, 0x7E00u, half);
    return half | (bits >> 16 & 0x8000u);
  }
};

struct Bfloat {
  using Stored = std::uint16_t;
  using Held = float;

  static float load(std::uint32_t stored) { return std::bit_cast<float>(stored << 16); }
  static std::uint32_t store(float held) {
    const auto bits = std::bit_cast<std::uint32_t>(held);
    const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    return choose(magnitude, kFloatInfinity + 1, 0x7FC0u, rounded);
  }
};

/// Elements that stay in the nearest cache while one rank's after another's are added to them.
constexpr std::size_t kBlock = 1024;

template <typename Kind>
struct Adder {
  using Stored = typename Kind::Stored;
  using Held = typename Kind::Held;

  // On its own: inside of the loop over sources GCC vectorises its first turn alone.
  [[gnu::noinline]] static void add_one(Held* sum, const Stored* next, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      sum[i] = Kind::load(Kind::store(sum[i] + Kind::load(next[i])));
  }

  static const Stored* at(const std::byte* source, std::size_t begin) {
    return reinterpret_cast<const Stored*>(source) + begin;
  }

  static void add(std::span<const std::byte* const> sources, std::byte* target, std::size_t count,
                  double factor) {
    std::array<Held, kBlock> sum;
    for (std::size_t begin = 0; begin < count; begin += kBlock) {
      const std::size_t size = std::min(kBlock, count - begin);
      const Stored* const first = at(sources.front(), begin);
      for (std::size_t i = 0; i < size; ++i) sum[i] = Kind::load(first[i]);
      for (const std::byte* const source : sources.subspan(1))
        add_one(sum.data(), at(source, begin), size);
      if (factor != 1) {
        const auto times = static_cast<Held>(factor);
        for (std::size_t i = 0; i < size; ++i) sum[i] *= times;
      }
      Stored* const out = reinterpret_cast<Stored*>(target) + begin;
      for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<Stored>(Kind::store(sum[i]));
    }
  }
};

}  // namespace

Bytes size_of(Element element) {
  switch (element) {
    case Element::kFloat16:
    case Element::kBfloat16: return 2_B;
    case Element::kFloat32:
    case Element::kInt32: return 4_B;
    case Element::kFloat64:
    case Element::kComplex64:
    case Element::kInt64: return 8_B;
    case Element::kComplex128: return 16_B;
  }
  throw Error("elements of kind {} are unknown", static_cast<int>(element));
}

void add_up(Element element, std::span<const std::byte* const> sources, std::byte* target,
            Bytes size, double factor) {
  SPILLWAY_ASSERT(!sources.empty());
  if (sources.size() == 1 && sources.front() == target && factor == 1) return;
  switch (element) {
    case Element::kFloat16: return Adder<Half>::add(sources, target, size / 2_B, factor);
    case Element::kBfloat16: return Adder<Bfloat>::add(sources, target, size / 2_B, factor);
    case Element::kFloat32:
    case Element::kComplex64: return Adder<Whole<float>>::add(sources, target, size / 4_B, factor);
    case Element::kFloat64:
    case Element::kComplex128:
      return Adder<Whole<double>>::add(sources, target, size / 8_B, factor);
    // Without a sign, as LibTorch's wrap around where they overflow.
    case Element::kInt32:
      return Adder<Whole<std::uint32_t>>::add(sources, target, size / 4_B, factor);
    case Element::kInt64:
      return Adder<Whole<std::uint64_t>>::add(sources, target, size / 8_B, factor);
  }
}

}  // namespace spillway::allreduce
