#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>

#include "table.h"

namespace spillway::emulated {
namespace {

// The one kind that cuDNN has.
constexpr std::int64_t kBilinear = 0;
constexpr std::int64_t kZerosOutside = 0;
constexpr bool kAlignCorners = true;

torch::jit::Stack grid_sampler(const Arguments& arguments, const Draws&) {
  return {at::grid_sampler_2d(arguments.tensor("self"), arguments.tensor("grid"), kBilinear,
                              kZerosOutside, kAlignCorners)};
}

torch::jit::Stack grid_sampler_backward(const Arguments& arguments, const Draws&) {
  auto [input, grid] = at::grid_sampler_2d_backward(
      arguments.tensor("grad_output"), arguments.tensor("self"), arguments.tensor("grid"),
      kBilinear, kZerosOutside, kAlignCorners, {true, true});
  return {input, grid};
}

}  // namespace

Mappings sampling_mappings() {
  return {{"aten::cudnn_grid_sampler", grid_sampler},
          {"aten::cudnn_grid_sampler_backward", grid_sampler_backward}};
}

}  // namespace spillway::emulated
