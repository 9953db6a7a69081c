#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "adding.h"
#include "drawn_gradients.h"

namespace spillway::allreduce {
namespace {

at::ScalarType type_of(Element element) {
  switch (element) {
    case Element::kFloat32: return at::kFloat;
    case Element::kFloat64: return at::kDouble;
    case Element::kFloat16: return at::kHalf;
    case Element::kBfloat16: return at::kBFloat16;
    case Element::kComplex64: return at::kComplexFloat;
    case Element::kComplex128: return at::kComplexDouble;
    case Element::kInt32: return at::kInt;
    case Element::kInt64: return at::kLong;
  }
  return at::kFloat;
}

at::Tensor tensor_of(Element element, Array& array) {
  const auto count = static_cast<std::int64_t>(array.size() / size_of(element).count());
  return at::from_blob(array.data(), {count}, type_of(element));
}

/// A complex infinity times LibTorch's factor of 1 + 0i has parts that are no number: there the two
/// differ, and complex numbers are drawn without it.
void make_finite(Element element, Array& array) {
  if (element != Element::kComplex64 && element != Element::kComplex128) return;
  at::Tensor parts = at::view_as_real(tensor_of(element, array));
  parts.nan_to_num_(0, 1, -1).clamp_(-1e9, 1e9);
}

TEST(AddUp, HasTheBitsOfLibTorch) {
  std::mt19937_64 random(3);
  for (const Element element : kElements)
    for (const std::size_t count : {1u, 9u, 100u, 3333u, 200'000u}) {
      std::vector<Array> arrays;
      std::vector<const std::byte*> sources;
      for (int i = 0; i < 4; ++i) {
        arrays.push_back(drawn_gradients(element, count * size_of(element).count(), random));
        make_finite(element, arrays.back());
      }
      for (const Array& array : arrays) sources.push_back(array.data());
      const bool is_whole = element == Element::kInt32 || element == Element::kInt64;
      const double factor = is_whole ? 1 : 1.0 / 3;
      Array mine(arrays[0].size());
      add_up(element, sources, mine.data(), Bytes(mine.size()), factor);
      Array theirs = arrays[0];
      at::Tensor sum = tensor_of(element, theirs);
      for (std::size_t i = 1; i < arrays.size(); ++i) sum.add_(tensor_of(element, arrays[i]));
      // As Python does; `mul_(Scalar)` of C++ rounds the factor to the type of the sum first.
      if (!is_whole) sum.mul_(at::scalar_tensor(factor, at::kDouble));
      EXPECT_TRUE(same_numbers(element, mine, theirs)) << static_cast<int>(element) << " " << count;
    }
}

}  // namespace
}  // namespace spillway::allreduce
