#include "adding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drawn_gradients.h"

namespace spillway::allreduce {
namespace {

Array sum_of(Element element, const std::vector<Array>& arrays, double factor = 1) {
  std::vector<const std::byte*> sources;
  for (const Array& array : arrays) sources.push_back(array.data());
  Array target(arrays[0].size());
  add_up(element, sources, target.data(), Bytes(target.size()), factor);
  return target;
}

Array array_of(const std::vector<std::uint16_t>& numbers) {
  Array array(numbers.size() * 2);
  std::memcpy(array.data(), numbers.data(), array.size());
  return array;
}

TEST(AddUp, IsTheSumOfOneAfterAnother) {
  std::mt19937_64 random(1);
  for (const Element element : kElements)
    for (const std::size_t count : {0u, 1u, 7u, 1023u, 1024u, 1025u, 5000u})
      for (std::size_t many = 1; many <= 5; ++many) {
        std::vector<Array> arrays;
        for (std::size_t i = 0; i < many; ++i)
          arrays.push_back(drawn_gradients(element, count * size_of(element).count(), random));
        Array expected = arrays[0];
        for (std::size_t i = 1; i < many; ++i) expected = slow_sum(element, expected, arrays[i]);
        EXPECT_TRUE(same_numbers(element, sum_of(element, arrays), expected))
            << static_cast<int>(element) << " " << count << " " << many;
        if (element == Element::kInt32 || element == Element::kInt64) continue;
        EXPECT_TRUE(same_numbers(element, sum_of(element, arrays, 1.0 / 3),
                                 slow_product(element, expected, 1.0 / 3)))
            << static_cast<int>(element) << " " << count << " " << many;
      }
}

TEST(AddUp, WritesToOneOfItsSources) {
  std::mt19937_64 random(2);
  for (const Element element : kElements)
    for (std::size_t target = 0; target < 3; ++target) {
      std::vector<Array> arrays;
      for (int i = 0; i < 3; ++i)
        arrays.push_back(drawn_gradients(element, 3000 * size_of(element).count(), random));
      const Array expected = sum_of(element, arrays);
      std::vector<const std::byte*> sources;
      for (const Array& array : arrays) sources.push_back(array.data());
      add_up(element, sources, arrays[target].data(), Bytes(expected.size()), 1);
      EXPECT_EQ(arrays[target], expected);
    }
}

/// Zero has the sign of both; added to anything else it changes nothing, so this loads and stores.
TEST(AddUp, KnowsEachNumberOf16Bits) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const std::vector<Array> arrays{array_of(all), Array(2 * all.size())};
  for (const Element element : {Element::kFloat16, Element::kBfloat16}) {
    Array sum = sum_of(element, arrays);
    EXPECT_TRUE(same_numbers(element, sum, slow_sum(element, arrays[0], arrays[1])));
    const std::uint16_t minus_zero = 0x8000, zero = 0;
    EXPECT_EQ(number_at<std::uint16_t>(sum, minus_zero), zero);
    std::memcpy(sum.data() + 2 * minus_zero, &minus_zero, 2);
    EXPECT_TRUE(same_numbers(element, sum, arrays[0]));
  }
}

/// Products with many factors have each kind of remainder, ties too.
TEST(AddUp, RoundsEachNumberOf16BitsToTheNearestAndTiesToEven) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const Array numbers = array_of(all);
  for (const Element element : {Element::kFloat16, Element::kBfloat16})
    for (const double factor :
         {0.5, 0.125, 1.5, 3.0, 1.0009765625, 1.00390625, 1e-3, 1e5, -0.75, 1.0 / 3})
      EXPECT_TRUE(same_numbers(element, sum_of(element, {numbers}, factor),
                               slow_product(element, numbers, factor)))
          << static_cast<int>(element) << " " << factor;
}

TEST(AddUp, AddsEachPairOfSomeNumbersOf16Bits) {
  std::vector<std::uint16_t> left, right;
  for (std::uint32_t a = 0; a < 65536; a += 251)
    for (std::uint32_t b = 0; b < 65536; b += 83) {
      left.push_back(static_cast<std::uint16_t>(a));
      right.push_back(static_cast<std::uint16_t>(b));
    }
  const std::vector<Array> arrays{array_of(left), array_of(right)};
  for (const Element element : {Element::kFloat16, Element::kBfloat16})
    EXPECT_TRUE(
        same_numbers(element, sum_of(element, arrays), slow_sum(element, arrays[0], arrays[1])));
}

}  // namespace
}  // namespace spillway::allreduce
