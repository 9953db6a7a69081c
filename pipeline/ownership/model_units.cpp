#include "spillway/pipeline/ownership/model_units.h"

#include <algorithm>
#include <utility>

#include "spillway/base/assert.h"

namespace spillway::pipeline {

void ModelUnits::add(Bytes parameter, bool is_joined, bool is_initialised) {
  units_.push_back({.parameter = parameter, .is_joined = is_joined && !units_.empty()});
  uses_.push_back({step_, is_initialised});
}

bool ModelUnits::has_ended(std::uint32_t unit) const {
  constexpr std::uint64_t kSteps = 8;  // Models that are trained by turns have not.
  return step_ - uses_[unit].latest_step > kSteps;
}

std::vector<std::optional<std::uint32_t>> ModelUnits::keep(const std::vector<bool>& stays) {
  SPILLWAY_ASSERT(!is_counting_ && stays.size() == units_.size());
  std::vector<std::optional<std::uint32_t>> numbers(stays.size());
  std::uint32_t count = 0;
  for (std::uint32_t unit = 0; unit < stays.size(); ++unit) {
    if (!stays[unit]) continue;
    units_[unit].is_joined &= unit > 0 && stays[unit - 1];
    units_[count] = units_[unit];
    uses_[count] = uses_[unit];
    numbers[unit] = count++;
  }
  units_.resize(count);
  uses_.resize(count);
  std::vector<UnitBorder> borders;
  for (UnitBorder& border : borders_) {
    if (!numbers[border.producer]) continue;
    UnitBorder& kept = borders.emplace_back(*numbers[border.producer]);
    kept.bytes = border.bytes;
    for (const std::uint32_t consumer : border.consumers)
      if (numbers[consumer]) kept.consumers.push_back(*numbers[consumer]);
    if (kept.consumers.empty()) borders.pop_back();
  }
  borders_ = std::move(borders);
  return numbers;
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
