#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace brain_unet {

/// Edges of a box of voxels: depth, height, width.
using Box = std::array<std::int64_t, 3>;

struct BrainOptions {
  std::filesystem::path data = "/usr/share/mricron/templates";
  std::string classes = "brain";
  double voxel_mm = 1.0;
  std::optional<Box> patch;        ///< Absent: the whole volume in every step.
  std::int64_t edge_multiple = 1;  ///< The whole volume is padded until this divides its edges.
};

/// What one training step sees.
struct Sample {
  torch::Tensor image;   ///< [1, 1, D, H, W], float
  torch::Tensor labels;  ///< [1, D, H, W], long
};

/// A T1-weighted head with the atlas regions of its brain, in memory, at the wanted voxel size.
class Brain {
 public:
  explicit Brain(const BrainOptions& options);

  /// The patch of a step, at a random place; or the whole volume.
  Sample sample(std::uint64_t seed, std::int64_t step) const;

  std::int64_t class_count() const { return class_count_; }
  Box shape() const;

 private:
  torch::Tensor image_;   // [1, 1, D, H, W], float, zero mean, unit variance
  torch::Tensor labels_;  // [1, D, H, W], byte
  std::optional<Box> patch_;
  std::int64_t class_count_ = 0;
};

}  // namespace brain_unet
