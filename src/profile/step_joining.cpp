#include "spillway/profile/step_joining.h"

#include <algorithm>
#include <tuple>

#include "spillway/base/assert.h"
#include "spillway/profile/autograd_links.h"

namespace spillway::profile {
namespace {

class Joiner {
 public:
  void append(const RecordedStep& step) {
    const auto op_offset = static_cast<OpIndex>(joined_.tape.ops.size());
    const auto use_offset = static_cast<std::uint32_t>(joined_.tape.uses.size());
    map_values(step, op_offset);
    for (TapeOp op : step.tape.ops) {
      op.first_use += use_offset;
      joined_.tape.ops.push_back(op);
    }
    joined_.autograd_of_op.insert(joined_.autograd_of_op.end(), step.autograd_of_op.begin(),
                                  step.autograd_of_op.end());
    for (const TapeUse& use : step.tape.uses)
      joined_.tape.uses.push_back({map_[use.value], use.writes});
  }

  RecordedStep finish(const RecordedStep& first, const RecordedStep& last,
                      const RecordedStep* before) {
    if (before != nullptr && before->is_whole) link_by_position(first, last, *before);
    link_by_identity();
    return std::move(joined_);
  }

 private:
  void map_values(const RecordedStep& step, OpIndex op_offset) {
    previous_map_.swap(map_);
    map_.assign(step.tape.values.size(), kNoValue);
    for (ValueIndex i = 0; i < map_.size(); ++i) {
      const TapeValue& value = step.tape.values[i];
      const ValueIndex before = step.origins[i].before;
      if (op_offset > 0 && before < previous_map_.size()) {
        map_[i] = previous_map_[before];
      } else {
        map_[i] = static_cast<ValueIndex>(joined_.tape.values.size());
        joined_.tape.values.push_back(value);
        joined_.origins.push_back(step.origins[i]);
        // What appears in a later step without having been seen before was born unseen.
        TapeValue& added = joined_.tape.values.back();
        if (added.birth != kCarriedIn)
          added.birth += op_offset;
        else if (op_offset > 0)
          added.birth = op_offset - 1;
      }
      TapeValue& joined = joined_.tape.values[map_[i]];
      joined.death = value.death == kSurvives ? kSurvives : value.death + op_offset;
    }
    if (first_map_.empty()) first_map_ = map_;
  }

  bool can_link(ValueIndex survivor, ValueIndex carried) const {
    const auto& values = joined_.tape.values;
    return values[survivor].death == kSurvives && values[survivor].becomes == kNoValue &&
           values[carried].birth == kCarriedIn && !is_continued_[carried] &&
           values[survivor].pages == values[carried].pages;
  }

  void link(ValueIndex survivor, ValueIndex carried) {
    joined_.tape.values[survivor].becomes = carried;
    is_continued_[carried] = true;
  }

  /// The step before the first one is the last one of the previous period: what its values became
  /// in the first step, the values of the last step with the same numbers will become too.
  void link_by_position(const RecordedStep& first, const RecordedStep& last,
                        const RecordedStep& before) {
    is_continued_.assign(joined_.tape.values.size(), false);
    for (ValueIndex i = 0; i < first.origins.size(); ++i) {
      const ValueIndex number = first.origins[i].before;
      if (number >= before.origins.size() || number >= last.origins.size()) continue;
      if (before.origins[number].birth_key != last.origins[number].birth_key) continue;
      if (can_link(map_[number], first_map_[i])) link(map_[number], first_map_[i]);
    }
  }

  void link_by_identity() {
    is_continued_.resize(joined_.tape.values.size(), false);
    // The same storage first, so that an exchange between equal birth places cannot take it away.
    for (ValueIndex i = 0; i < joined_.tape.values.size(); ++i) {
      if (can_link(i, i)) link(i, i);
    }
    using Entry = std::tuple<std::uint64_t, std::uint64_t, ValueIndex>;  // birth key, serial
    std::vector<Entry> survivors;
    std::vector<Entry> carried;
    for (ValueIndex i = 0; i < joined_.tape.values.size(); ++i) {
      const TapeValue& value = joined_.tape.values[i];
      const Entry entry{joined_.origins[i].birth_key, joined_.origins[i].serial, i};
      if (value.death == kSurvives && value.becomes == kNoValue) survivors.push_back(entry);
      if (value.birth == kCarriedIn && !is_continued_[i]) carried.push_back(entry);
    }
    std::sort(survivors.begin(), survivors.end());
    std::sort(carried.begin(), carried.end());
    std::size_t next = 0;
    for (const Entry& survivor : survivors) {
      while (next < carried.size() && std::get<0>(carried[next]) < std::get<0>(survivor)) ++next;
      if (next == carried.size() || std::get<0>(carried[next]) != std::get<0>(survivor)) continue;
      if (can_link(std::get<2>(survivor), std::get<2>(carried[next])))
        link(std::get<2>(survivor), std::get<2>(carried[next]));
      ++next;
    }
  }

  RecordedStep joined_;
  std::vector<ValueIndex> map_;  ///< Numbers in the newest step to joined numbers.
  std::vector<ValueIndex> previous_map_;
  std::vector<ValueIndex> first_map_;
  std::vector<bool> is_continued_;
};

}  // namespace

RecordedStep join_steps(std::span<const RecordedStep* const> steps, const RecordedStep* before) {
  SPILLWAY_ASSERT(!steps.empty());
  Joiner joiner;
  std::vector<OpPhase> phases;
  for (const RecordedStep* step : steps) {
    SPILLWAY_ASSERT(step->is_whole);
    joiner.append(*step);
  }
  RecordedStep joined = joiner.finish(*steps.front(), *steps.back(), before);
  for (const AutogradFacts& facts : joined.autograd_of_op) phases.push_back(facts.phase);
  if (steps.size() == 1) joined.tape.forward_end = forward_end_of(phases);
  return joined;
}

}  // namespace spillway::profile
