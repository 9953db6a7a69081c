#include "photo_net/task.h"

#include <stdexcept>

namespace photo_net {
namespace {

// Brightness and two colour differences, as JPEG itself defines them (ITU-R BT.601).
Example hide_colours(const torch::Tensor& photos) {
  const torch::Tensor red = photos.narrow(1, 0, 1);
  const torch::Tensor green = photos.narrow(1, 1, 1);
  const torch::Tensor blue = photos.narrow(1, 2, 1);
  const torch::Tensor luma = 0.299 * red + 0.587 * green + 0.114 * blue;
  return {luma, torch::cat({(blue - luma) / 1.772, (red - luma) / 1.402}, 1)};
}

Example hide_details(const torch::Tensor& photos) {
  namespace F = torch::nn::functional;
  const std::vector<std::int64_t> size(photos.sizes().begin() + 2, photos.sizes().end());
  const auto enlarge =
      F::InterpolateFuncOptions().size(size).mode(torch::kBilinear).align_corners(false);
  return {F::interpolate(torch::avg_pool2d(photos, 2), enlarge), photos};
}

}  // namespace

Example Task::hide(const torch::Tensor& photos) const {
  if (name == "colourise") return hide_colours(photos);
  if (name == "denoise") return {photos + noise * torch::randn_like(photos), photos};
  if (name == "super_resolve") return hide_details(photos);
  throw std::invalid_argument("unknown task '" + name + "'");
}

}  // namespace photo_net
