#include "brain_unet/brain.h"

#include <cmath>

#include "brain_unet/label_groups.h"
#include "brain_unet/volume.h"
#include "trainer/bad_input.h"
#include "trainer/random_choice.h"

namespace brain_unet {
namespace {

namespace F = torch::nn::functional;

// [1, 1, D, H, W], as interpolation and convolution want it.
torch::Tensor as_tensor(const Volume& volume) {
  const auto [depth, height, width] = volume.shape;
  return torch::tensor(volume.values).view({1, 1, depth, height, width});
}

std::vector<std::int64_t> resampled_shape(const Volume& volume, double voxel_mm) {
  std::vector<std::int64_t> shape;
  for (std::size_t axis = 0; axis < 3; ++axis)
    shape.push_back(
        std::llround(static_cast<double>(volume.shape[axis]) * volume.spacing_mm[axis] / voxel_mm));
  return shape;
}

torch::Tensor read_image(const Volume& volume, const std::vector<std::int64_t>& shape) {
  const auto resample =
      F::InterpolateFuncOptions().size(shape).mode(torch::kTrilinear).align_corners(false);
  const torch::Tensor image = F::interpolate(as_tensor(volume), resample);
  return (image - image.mean()) / image.std();
}

torch::Tensor read_labels(const Volume& volume, const std::vector<std::int64_t>& shape,
                          const LabelGroups& groups) {
  const torch::Tensor table = torch::tensor(
      std::vector<std::uint8_t>(groups.class_of_label.begin(), groups.class_of_label.end()),
      torch::kByte);
  const torch::Tensor classes = table.take(as_tensor(volume).to(torch::kLong));
  // Labels are names, not amounts: never blend two of them.
  const auto resample = F::InterpolateFuncOptions().size(shape).mode(torch::kNearest);
  return F::interpolate(classes, resample).squeeze(0);
}

torch::Tensor pad_to_multiple(const torch::Tensor& volume, std::int64_t multiple) {
  std::vector<std::int64_t> padding;  // Last axis first: left, right, left, right, ...
  for (std::int64_t axis = -1; axis >= -3; --axis) {
    padding.push_back(0);
    padding.push_back((multiple - volume.size(axis) % multiple) % multiple);
  }
  // The head is surrounded by air, the darkest value, and air belongs to class 0.
  return torch::constant_pad_nd(volume, padding, volume.min().item());
}

void require_inside(const Box& patch, const torch::Tensor& image) {
  for (std::int64_t axis = 0; axis < 3; ++axis) {
    if (patch.at(axis) <= image.size(axis + 2)) continue;
    throw trainer::BadInput("--patch is larger than the volume: edge " +
                            std::to_string(patch.at(axis)) + " of axis " + std::to_string(axis) +
                            " against " + std::to_string(image.size(axis + 2)) + " voxels");
  }
}

}  // namespace

Brain::Brain(const BrainOptions& options) : patch_(options.patch) {
  const Volume head = read_volume(options.data / "ch2.nii.gz");
  const Volume atlas = read_volume(options.data / "aal.nii.gz");
  if (head.shape != atlas.shape)
    throw trainer::BadInput("ch2.nii.gz and aal.nii.gz in '" + options.data.string() +
                            "' have different shapes");
  const LabelGroups groups = group_labels(options.data / "aal.nii.txt", options.classes);
  const auto shape = resampled_shape(head, options.voxel_mm);
  class_count_ = groups.class_count;
  image_ = read_image(head, shape);
  labels_ = read_labels(atlas, shape, groups);
  if (patch_) {
    require_inside(*patch_, image_);
  } else {
    image_ = pad_to_multiple(image_, options.edge_multiple);
    labels_ = pad_to_multiple(labels_, options.edge_multiple);
  }
}

Sample Brain::sample(std::uint64_t seed, std::int64_t step) const {
  torch::Tensor image = image_;
  torch::Tensor labels = labels_;
  if (patch_) {
    for (std::int64_t axis = 0; axis < 3; ++axis) {
      const std::int64_t edge = patch_->at(axis);
      const std::int64_t start =
          trainer::random_index(image_.size(axis + 2) - edge + 1, seed, step, axis);
      image = image.narrow(axis + 2, start, edge);
      labels = labels.narrow(axis + 1, start, edge);
    }
  }
  return {image.contiguous(), labels.to(torch::kLong)};
}

Box Brain::shape() const { return {image_.size(2), image_.size(3), image_.size(4)}; }

}  // namespace brain_unet
