#include "spillway/pipeline/ownership/model_units.h"

#include <algorithm>
#include <utility>

namespace spillway::pipeline {

void ModelUnits::add(Bytes parameter, bool is_joined) {
  units_.push_back({.parameter = parameter, .is_joined = is_joined && !units_.empty()});
}

void ModelUnits::note_read(StorageOrdinal storage, std::uint32_t producer, std::uint32_t consumer,
                           Bytes size) {
  if (!is_counting_ || producer >= consumer) return;
  UnitBorder& border = read_[{storage, producer}];
  border.producer = producer;
  border.bytes = size;
  const auto place = std::lower_bound(border.consumers.begin(), border.consumers.end(), consumer);
  if (place == border.consumers.end() || *place != consumer)
    border.consumers.insert(place, consumer);
}

void ModelUnits::note_ended(StorageOrdinal storage, std::optional<std::uint32_t> parameter_of) {
  if (is_counting_) read_.erase(read_.lower_bound({storage, 0}), read_.upper_bound({storage, ~0u}));
  if (!parameter_of) return;
  units_[*parameter_of] = {.is_joined = units_[*parameter_of].is_joined, .has_ended = true};
  ++ended_;
}

void ModelUnits::end_count(const Directory& directory) {
  if (!std::exchange(is_counting_, false)) return;
  for (const auto& [storage, facts] : directory)
    if (facts.unit && facts.is_of_forward) units_[*facts.unit].stash += facts.size;
  for (auto& [made, border] : read_) borders_.push_back(std::move(border));
  read_.clear();
}

std::vector<ModelUnit> ModelUnits::units(const Directory& directory) const {
  std::vector<ModelUnit> all = units_;
  for (ModelUnit& unit : all) unit.kept += unit.parameter;  // Its gradient, there or not.
  for (const auto& [storage, facts] : directory)
    if (facts.unit && !facts.is_of_forward && !facts.is_gradient)
      all[*facts.unit].kept += facts.size;
  return all;
}

}  // namespace spillway::pipeline
