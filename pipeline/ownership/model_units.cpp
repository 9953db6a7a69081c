#include "spillway/pipeline/ownership/model_units.h"

#include <algorithm>
#include <utility>

#include "spillway/base/assert.h"

namespace spillway::pipeline {

void ModelUnits::add(Bytes parameter, bool is_joined) {
  units_.push_back({.parameter = parameter, .is_joined = is_joined && !units_.empty()});
  steps_.push_back({.latest = step_});
}

void ModelUnits::note_used(std::uint32_t unit) {
  Steps& steps = steps_[unit];
  steps.longest_pause = std::max(steps.longest_pause, step_ - steps.latest);
  steps.latest = step_;
}

/// Models that are trained by turns have not, however long the turns are, once each had its own.
bool ModelUnits::has_ended(std::uint32_t unit) const {
  constexpr std::uint64_t kSteps = 8;
  const Steps& steps = steps_[unit];
  return step_ - steps.latest > std::max(kSteps, 2 * steps.longest_pause);
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

void ModelUnits::note_ended(StorageOrdinal storage) {
  if (is_counting_) read_.erase(read_.lower_bound({storage, 0}), read_.upper_bound({storage, ~0u}));
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
  for (std::uint32_t unit = 0; unit < all.size(); ++unit) {
    all[unit].kept += all[unit].parameter;  // Its gradient, there or not.
    all[unit].has_ended = has_ended(unit);
  }
  for (const auto& [storage, facts] : directory)
    if (facts.unit && !facts.is_of_forward && !facts.is_gradient)
      all[*facts.unit].kept += facts.size;
  return all;
}

}  // namespace spillway::pipeline
