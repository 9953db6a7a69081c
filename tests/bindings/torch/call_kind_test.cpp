#include "call_kind.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace spillway::torch_binding {
namespace {

std::uint64_t kind(const char* name, const char* overload, std::vector<c10::IValue> arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  return kind_of(op, arguments);
}

std::uint64_t convolution(at::Tensor input, std::vector<std::int64_t> stride, bool is_transposed,
                          std::int64_t groups) {
  const at::Tensor weight = at::zeros({4, 4, 3});
  return kind("aten::convolution", "",
              {input, weight, c10::IValue(), stride, std::vector<std::int64_t>{1},
               std::vector<std::int64_t>{1}, is_transposed, std::vector<std::int64_t>{0}, groups});
}

TEST(KindOf, IsTheSameForEqualCalls) {
  EXPECT_EQ(convolution(at::zeros({1, 4, 8}), {1}, false, 1),
            convolution(at::ones({1, 4, 8}), {1}, false, 1));
}

TEST(KindOf, TellsApartWhatMayRunAnotherKernel) {
  const at::Tensor x = at::zeros({1, 4, 8});
  const std::set<std::uint64_t> kinds = {
      convolution(x, {1}, false, 1),
      convolution(x, {2}, false, 1),
      convolution(x, {1}, true, 1),
      convolution(x, {1}, false, 2),
      convolution(at::zeros({1, 4, 8}).requires_grad_(), {1}, false, 1),
      convolution(at::zeros({1, 4, 9}), {1}, false, 1),
      convolution(at::zeros({1, 8, 4}).transpose(1, 2), {1}, false, 1),
      convolution(x.to(at::kDouble), {1}, false, 1),
  };
  EXPECT_EQ(kinds.size(), 8u);
}

TEST(KindOf, TellsApartLazyConjugationAndNegation) {
  const at::Tensor x = at::zeros({4, 4}, at::kComplexFloat);
  const at::Tensor y = at::view_as_real(x);
  EXPECT_NE(kind("aten::mm", "", {x, x}), kind("aten::mm", "", {x.conj(), x}));
  EXPECT_NE(kind("aten::mm", "", {x, x.conj()}), kind("aten::mm", "", {x.conj(), x}));
  EXPECT_NE(
      kind("aten::neg", "", {y.select(2, 1)}),
      kind("aten::neg", "", {at::view_as_real(x.conj().resolve_conj()).select(2, 1)._neg_view()}));
}

TEST(KindOf, TellsApartDimensionsAndFlags) {
  const at::Tensor x = at::zeros({4, 4});
  EXPECT_NE(kind("aten::_softmax", "", {x, 0, false}), kind("aten::_softmax", "", {x, 1, false}));
  EXPECT_NE(kind("aten::_softmax", "", {x, 0, false}), kind("aten::_softmax", "", {x, 0, true}));
  EXPECT_NE(kind("aten::cat", "", {c10::List<at::Tensor>({x, x}), 0}),
            kind("aten::cat", "", {c10::List<at::Tensor>({x, x}), 1}));
  EXPECT_NE(kind("aten::gelu", "", {x, "none"}), kind("aten::gelu", "", {x, "tanh"}));
}

TEST(KindOf, TellsApartRealNumbersThatKernelsTreatInTheirOwnWayOnly) {
  const at::Tensor x = at::zeros({4});
  const auto power = [&](double exponent) {
    return kind("aten::pow", "Tensor_Scalar", {x, exponent});
  };
  EXPECT_NE(power(2.0), power(3.0));
  EXPECT_NE(power(0.5), power(-0.5));
  EXPECT_NE(power(2.0), power(2.1));
  EXPECT_EQ(power(2.1), power(2.2)) << "as a learning rate that differs from step to step";
}

}  // namespace
}  // namespace spillway::torch_binding
