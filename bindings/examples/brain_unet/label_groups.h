#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace brain_unet {

/// Which class each of the 116 regions of the AAL atlas belongs to; class 0 is the background.
struct LabelGroups {
  std::array<std::uint8_t, 256> class_of_label{};
  std::int64_t class_count = 0;
};

/// The ways to group regions: `brain` (2 classes), `hemispheres` (4: left, right and the midline),
/// `lobes` (9) and `all` (117).
const std::vector<std::string>& grouping_names();

/// Groups the regions listed in the atlas's table, lines of `label name code`. Throws
/// `trainer::BadInput` when the table cannot be read.
LabelGroups group_labels(const std::filesystem::path& table, const std::string& grouping);

}  // namespace brain_unet
