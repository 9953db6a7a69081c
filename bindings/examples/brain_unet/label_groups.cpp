#include "brain_unet/label_groups.h"

#include <algorithm>
#include <fstream>

#include "trainer/bad_input.h"

namespace brain_unet {
namespace {

struct Region {
  int label = 0;
  std::string name;
  int code = 0;
};

std::uint8_t hemisphere(const Region& region) {
  const auto ends_with = [&](const char* side) { return region.name.ends_with(side); };
  if (ends_with("_L")) return 1;
  if (ends_with("_R")) return 2;
  return 3;  // the vermis of the cerebellum
}

std::uint8_t class_of(const Region& region, const std::string& grouping) {
  if (grouping == "brain") return 1;
  if (grouping == "hemispheres") return hemisphere(region);
  // The thousands of a code number the lobes: 2 frontal, 3 insula, 4 limbic, 5 occipital, 6
  // parietal, 7 deep grey matter, 8 temporal, 9 cerebellum.
  if (grouping == "lobes") return static_cast<std::uint8_t>(region.code / 1000 - 1);
  if (grouping == "all") return static_cast<std::uint8_t>(region.label);
  throw trainer::BadInput("unknown grouping of labels '" + grouping + "': see --classes");
}

}  // namespace

const std::vector<std::string>& grouping_names() {
  static const std::vector<std::string> names{"brain", "hemispheres", "lobes", "all"};
  return names;
}

LabelGroups group_labels(const std::filesystem::path& table, const std::string& grouping) {
  std::ifstream file(table);
  LabelGroups groups;
  int regions = 0;
  int largest = 0;
  for (Region region; file >> region.label >> region.name >> region.code; ++regions) {
    if (region.label < 1 || region.label > 255 || region.code < 2000 || region.code > 9999)
      throw trainer::BadInput("'" + table.string() + "' has an unknown region: " + region.name);
    const std::uint8_t group = class_of(region, grouping);
    groups.class_of_label.at(region.label) = group;
    largest = std::max<int>(largest, group);
  }
  if (regions == 0)
    throw trainer::BadInput("'" + table.string() + "' lists no regions: see --data");
  groups.class_count = largest + 1;
  return groups;
}

}  // namespace brain_unet
