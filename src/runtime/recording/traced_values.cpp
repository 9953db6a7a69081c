#include "traced_values.h"

#include <map>
#include <utility>

#include "spillway/profile/step_joining.h"
#include "spillway/profile/value_classes.h"

namespace spillway::runtime {

using profile::OpIndex;
using profile::RecordedStep;
using profile::StorageClass;
using profile::ValueIndex;

namespace {

std::vector<StorageClass> classes_of(const RecordedStep& step, const RecordedStep* before) {
  const RecordedStep* const only = &step;
  const RecordedStep joined = profile::join_steps({&only, 1}, before);
  std::vector<StorageClass> noted;
  noted.reserve(joined.origins.size());
  for (const profile::ValueOrigin& origin : joined.origins) noted.push_back(origin.holds);
  return profile::classify_values(joined.tape, noted);
}

/// Finds the storage that a value was by its slot and by the operator in which it was born.
class Storages {
 public:
  Storages(std::span<const StorageBirth> births, std::size_t own,
           std::span<const std::uint64_t> latest)
      : latest_(latest) {
    for (std::size_t i = births.size(); i-- > 0;) {
      const StorageBirth& birth = births[i];
      first_[birth.slot] = &birth;
      // What came later in the same operator stands behind: what was freed inside it is no value.
      if (i < own) born_[{birth.slot, birth.op}].push_back(birth.number);
    }
  }

  /// 0: unknown. Values of one slot must come latest first.
  std::uint64_t born(std::uint32_t slot, OpIndex op) {
    const auto found = born_.find({slot, op});
    if (found == born_.end() || found->second.empty()) return 0;
    const std::uint64_t number = found->second.front();
    found->second.erase(found->second.begin());
    return number;
  }

  std::uint64_t carried_in(std::uint32_t slot) {
    if (const std::uint64_t number = born(slot, profile::kCarriedIn)) return number;
    const auto first = first_.find(slot);
    if (first == first_.end()) return slot < latest_.size() ? latest_[slot] : 0;
    return first->second->before != 0 ? first->second->before : first->second->number;
  }

 private:
  std::span<const std::uint64_t> latest_;
  std::unordered_map<std::uint32_t, const StorageBirth*> first_;
  std::map<std::pair<std::uint32_t, OpIndex>, std::vector<std::uint64_t>> born_;  ///< Latest first.
};

}  // namespace

TracedValues traced_values(const RecordedStep& step, const RecordedStep* before,
                           std::span<const StorageBirth> births, std::size_t own,
                           std::span<const std::uint64_t> storages) {
  TracedValues values;
  Storages known(births, own, storages);
  const std::vector<StorageClass> classes = classes_of(step, before);
  for (ValueIndex i = static_cast<ValueIndex>(step.origins.size()); i-- > 0;) {
    const std::uint32_t slot = step.origins[i].range;
    if (slot == StorageId().slot()) continue;
    const OpIndex birth = step.tape.values[i].birth;
    const bool is_carried_in = birth == profile::kCarriedIn;
    const std::uint64_t number = is_carried_in ? known.carried_in(slot) : known.born(slot, birth);
    if (number != 0) values.try_emplace(number, TracedValue{i, classes[i], is_carried_in});
  }
  return values;
}

}  // namespace spillway::runtime
