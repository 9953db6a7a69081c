#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace brain_unet {

/// A scanned volume. The first axis is the slowest in memory: depth, height, width.
struct Volume {
  std::array<std::int64_t, 3> shape{};
  std::array<double, 3> spacing_mm{};
  std::vector<float> values;
};

/// Reads a NIfTI file with one 3-D volume of any integer or floating point type. Throws
/// `trainer::BadInput` when that is not what the file holds.
Volume read_volume(const std::filesystem::path& path);

}  // namespace brain_unet
