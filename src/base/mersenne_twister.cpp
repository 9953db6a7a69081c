#include "spillway/base/mersenne_twister.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "spillway/base/assert.h"

namespace spillway::mersenne_twister {
namespace {

constexpr std::size_t kShift = 397;
constexpr std::uint32_t kMatrix = 0x9908B0DF;
constexpr std::uint32_t kUpperBit = 0x80000000;

/// Of the recurrence: the upper bit of one word with the lower bits of the next.
inline std::uint32_t twisted(std::uint32_t word, std::uint32_t next) {
  const std::uint32_t mixed = (word & kUpperBit) | (next & ~kUpperBit);
  return (mixed >> 1) ^ (-(next & 1) & kMatrix);
}

/// Bits that the generator's state really has: of the oldest word it uses the upper one alone.
constexpr std::size_t kDegree = 31 * (kWords - 1) + kWords;

/// A polynomial over the field of two elements: bit i is the coefficient of x^i.
class Polynomial {
 public:
  /// With coefficients below x^`size`.
  explicit Polynomial(std::size_t size) : words_((size + 63) / 64) {}

  bool at(std::size_t exponent) const {
    return (words_[exponent / 64] >> (exponent % 64) & 1) != 0;
  }
  void flip(std::size_t exponent) { words_[exponent / 64] ^= std::uint64_t{1} << (exponent % 64); }
  /// Adds the polynomial of a word's bits, times x^`shift`.
  void add(std::uint64_t bits, std::size_t shift) {
    const std::size_t word = shift / 64;
    words_[word] ^= bits << (shift % 64);
    if (shift % 64 > 0 && bits >> (64 - shift % 64) != 0)
      words_[word + 1] ^= bits >> (64 - shift % 64);
  }
  const std::vector<std::uint64_t>& words() const { return words_; }
  std::vector<std::uint64_t>& words() { return words_; }

 private:
  std::vector<std::uint64_t> words_;
};

/// The exponents of the characteristic polynomial, without the highest, which is kDegree. From the
/// closed form in the generator's paper, by Horner's rule over (x^n + x^m) and (x^n + x^m)/x.
std::vector<std::size_t> make_lower_exponents() {
  std::vector<std::size_t> exponents{0};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    const std::size_t less = bit < 31 ? 1 : 0;
    std::vector<std::size_t> products;
    for (const std::size_t exponent : exponents) {
      products.push_back(exponent + kWords - less);
      products.push_back(exponent + kShift - less);
    }
    if ((kMatrix >> bit & 1) != 0) products.push_back(0);
    std::sort(products.begin(), products.end());
    exponents.clear();
    for (const std::size_t exponent : products) {
      if (!exponents.empty() && exponents.back() == exponent) {
        exponents.pop_back();  // Twice is not at all.
      } else {
        exponents.push_back(exponent);
      }
    }
  }
  SPILLWAY_ASSERT(exponents.back() == kDegree);
  exponents.pop_back();
  return exponents;
}

const std::vector<std::size_t>& lower_exponents() {
  static const std::vector<std::size_t> exponents = make_lower_exponents();
  return exponents;
}

/// Takes multiples of the characteristic polynomial away until the degree is below kDegree. The
/// second highest exponent is so much lower that a word can go at once.
void reduce(Polynomial& product) {
  const std::vector<std::size_t>& exponents = lower_exponents();
  std::vector<std::uint64_t>& words = product.words();
  constexpr std::size_t kLast = kDegree / 64;
  for (std::size_t word = words.size() - 1; word >= kLast; --word) {
    // Of the last one some coefficients stay.
    const std::size_t begin = std::max(word * 64, kDegree);
    const std::uint64_t bits = words[word] >> (begin % 64);
    if (bits == 0) continue;
    words[word] ^= bits << (begin % 64);
    for (const std::size_t exponent : exponents) product.add(bits, begin - kDegree + exponent);
  }
}

/// Zeros between the bits.
std::uint64_t spread(std::uint64_t bits) {
  bits &= 0xFFFFFFFF;
  bits = (bits | bits << 16) & 0x0000FFFF0000FFFF;
  bits = (bits | bits << 8) & 0x00FF00FF00FF00FF;
  bits = (bits | bits << 4) & 0x0F0F0F0F0F0F0F0F;
  bits = (bits | bits << 2) & 0x3333333333333333;
  return (bits | bits << 1) & 0x5555555555555555;
}

/// x^`exponent` modulo the characteristic polynomial.
Polynomial power_of_x(std::uint64_t exponent) {
  constexpr int kFirstBits = 14;  // Of the exponent: such a power needs no division.
  static_assert(std::uint64_t{1} << kFirstBits <= kDegree);
  int left = std::max(0, 64 - std::countl_zero(exponent) - kFirstBits);
  Polynomial power(kDegree);
  power.flip(exponent >> left);
  while (left-- > 0) {
    Polynomial square(2 * kDegree + 64);
    for (std::size_t i = 0; i < power.words().size(); ++i) {
      square.words()[2 * i] = spread(power.words()[i]);
      square.words()[2 * i + 1] = spread(power.words()[i] >> 32);
    }
    if ((exponent >> left & 1) != 0) {
      std::uint64_t carried = 0;
      for (std::uint64_t& word : square.words()) {
        const std::uint64_t highest = word >> 63;
        word = word << 1 | carried;
        carried = highest;
      }
    }
    reduce(square);
    std::copy_n(square.words().begin(), power.words().size(), power.words().begin());
  }
  return power;
}

}  // namespace

/// Two loops without a branch: the compiler makes vectors of them.
void next_block(Block& block) {
  std::uint32_t* const w = block.data();
  constexpr std::size_t kBack = kWords - kShift;
  for (std::size_t i = 0; i < kBack; ++i) w[i] = w[i + kShift] ^ twisted(w[i], w[i + 1]);
  for (std::size_t i = kBack; i < kWords - 1; ++i) w[i] = w[i - kBack] ^ twisted(w[i], w[i + 1]);
  w[kWords - 1] = w[kShift - 1] ^ twisted(w[kWords - 1], w[0]);
}

void jump(Block& block, std::uint64_t blocks) {
  SPILLWAY_ASSERT(blocks > 0 && blocks <= ~std::uint64_t{0} / kWords);
  // The lower bits of the block's first word are no part of the state: the sequence begins behind.
  const Polynomial power = power_of_x(blocks * kWords - 1);
  std::vector<std::uint32_t> words;
  words.reserve(kDegree + 2 * kWords);
  while (words.size() < kDegree + kWords) {
    words.insert(words.end(), block.begin() + (words.empty() ? 1 : 0), block.end());
    next_block(block);
  }
  block.fill(0);
  for (std::size_t exponent = 0; exponent < kDegree; ++exponent) {
    if (!power.at(exponent)) continue;
    const std::uint32_t* const from = words.data() + exponent;
    for (std::size_t i = 0; i < kWords; ++i) block[i] ^= from[i];
  }
}

void skip_blocks(Block& block, std::uint64_t blocks) {
  constexpr std::uint64_t kWorthAJump = 10'000;
  if (blocks > kWorthAJump) {
    jump(block, blocks);
    return;
  }
  for (; blocks > 0; --blocks) next_block(block);
}

}  // namespace spillway::mersenne_twister
