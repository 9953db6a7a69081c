#include "frozen_prefix.h"

#include <algorithm>

#include "layer_dependences.h"

namespace spillway::planner {

using profile::OpIndex;
using profile::StorageClass;
using profile::TapeUse;
using profile::ValueIndex;

LayerIndex frozen_prefix(const profile::StepProfile& profile,
                         const std::vector<LayerIndex>& layer_of_op, OpIndex forward_end) {
  const profile::StepTape& tape = profile.tape;
  std::vector<char> is_used(tape.values.size(), 0);
  for (OpIndex op = forward_end + 1; op < tape.ops.size(); ++op)
    for (const TapeUse& use : uses_of(tape, op)) is_used[use.value] = 1;
  LayerIndex stem = 0;
  for (const LayerIndex layer : layer_of_op)
    if (layer != kNoLayer) stem = std::max(stem, layer + 1);
  for (OpIndex op = 0; op <= forward_end; ++op) {
    if (layer_of_op[op] == kNoLayer) continue;
    for (const TapeUse& use : uses_of(tape, op))
      if (is_used[use.value] != 0 || profile.class_of_value[use.value] == StorageClass::kParameter)
        stem = std::min(stem, layer_of_op[op]);
  }
  for (ValueIndex i = 0; i < tape.values.size(); ++i) {
    const OpIndex birth = tape.values[i].birth;
    if (is_used[i] != 0 && birth != profile::kCarriedIn && layer_of_op[birth] != kNoLayer)
      stem = std::min(stem, layer_of_op[birth]);
  }
  return stem;
}

}  // namespace spillway::planner
