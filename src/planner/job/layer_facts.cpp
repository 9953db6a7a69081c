#include "layer_facts.h"

#include <algorithm>
#include <set>
#include <utility>

namespace spillway::planner {

using profile::OpIndex;
using profile::StepProfile;
using profile::StepTape;
using profile::StorageClass;
using profile::TapeUse;
using profile::TapeValue;
using profile::ValueIndex;

namespace {

class DependenceReader {
 public:
  DependenceReader(const StepProfile& profile, const std::vector<LayerIndex>& layer_of_op)
      : profile_(profile), tape_(profile.tape), layer_of_op_(layer_of_op) {}

  std::vector<LayerDependence> read() {
    add_writes();
    if (profile_.hidden_dependences) {
      for (const profile::HiddenDependence& each : *profile_.hidden_dependences)
        add(layer_of_op_[each.before], layer_of_op_[each.after]);
    } else {
      add_guesses();
    }
    std::vector<LayerDependence> dependences;
    for (const auto& [before, after] : found_) dependences.push_back({before, after});
    return dependences;
  }

 private:
  void add(LayerIndex before, LayerIndex after) {
    if (before != kNoLayer && after != kNoLayer && before < after) found_.emplace(before, after);
  }

  /// Readers wait for the latest write, and a write for all readers since the one before.
  void add_writes() {
    struct Trail {
      LayerIndex writer = kNoLayer;
      std::vector<LayerIndex> readers;
    };
    std::vector<Trail> trails(tape_.values.size());
    for (OpIndex op = 0; op < tape_.ops.size(); ++op) {
      const LayerIndex here = layer_of_op_[op];
      if (here == kNoLayer) continue;
      for (const TapeUse& use : uses_of(tape_, op)) {
        Trail& trail = trails[use.value];
        add(trail.writer, here);
        // A write ends what earlier readers could see, so it starts the list of readers anew.
        if (use.writes) {
          for (const LayerIndex reader : trail.readers) add(reader, here);
          trail = {here, {}};
        } else {
          trail.readers.push_back(here);
        }
      }
    }
  }

  bool is_seen_input(const TapeUse& use) const {
    const OpIndex birth = tape_.values[use.value].birth;
    if (birth != profile::kCarriedIn) return layer_of_op_[birth] != kNoLayer;
    return profile_.class_of_value[use.value] == StorageClass::kInput;
  }

  void add_guesses() {
    std::vector<char> makes(tape_.ops.size(), 0);
    for (const TapeValue& value : tape_.values)
      if (value.birth != profile::kCarriedIn) makes[value.birth] = 1;
    LayerIndex barrier = kNoLayer;
    LayerIndex unrepeatable = kNoLayer;
    for (OpIndex op = 0; op < tape_.ops.size(); ++op) {
      const LayerIndex here = layer_of_op_[op];
      if (here == kNoLayer) continue;
      bool has_input = false;
      bool has_output = makes[op] != 0;
      for (const TapeUse& use : uses_of(tape_, op)) {
        has_input = has_input || is_seen_input(use);
        has_output = has_output || use.writes;
      }
      add(barrier, here);
      // What it waits for cannot be seen either, so it stays behind the layer before it.
      if (!has_input && here > 0) add(here - 1, here);
      // Random numbers in another order are other numbers.
      if (!tape_.ops[op].is_replayable) add(std::exchange(unrepeatable, here), here);
      // What it does cannot be seen, so everything behind may depend on it.
      if (!has_output) barrier = here;
    }
  }

  const StepProfile& profile_;
  const StepTape& tape_;
  const std::vector<LayerIndex>& layer_of_op_;
  std::set<std::pair<LayerIndex, LayerIndex>> found_;
};

/// Transients that operators of the update leave to later ones, by the operator behind which they
/// are gone.
struct Leftovers {
  std::vector<Bytes> born, gone;  ///< By operator.
};

Leftovers leftovers_of(const StepProfile& profile, const OperatorRoles& roles) {
  const std::size_t ops = profile.tape.ops.size();
  Leftovers found{std::vector<Bytes>(ops), std::vector<Bytes>(ops)};
  for (std::size_t i = 0; i < profile.tape.values.size(); ++i) {
    const TapeValue& value = profile.tape.values[i];
    if (value.birth == profile::kCarriedIn || value.death == profile::kSurvives ||
        value.death == value.birth || !roles.is(value.birth, Role::kUpdate))
      continue;
    const Bytes held = value.pages * profile.page_size;
    found.born[value.birth] += held;
    found.gone[value.death] += held;
  }
  return found;
}

}  // namespace

std::vector<LayerDependence> layer_dependences(const StepProfile& profile,
                                               const std::vector<LayerIndex>& layer_of_op) {
  return DependenceReader(profile, layer_of_op).read();
}

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
        // Gradients reach it, or backward needs it: it does not lead frozen.
        stem = std::min(stem, layer_of_op[op]);
  }
  for (ValueIndex i = 0; i < tape.values.size(); ++i) {
    const OpIndex birth = tape.values[i].birth;
    if (is_used[i] != 0 && birth != profile::kCarriedIn && layer_of_op[birth] != kNoLayer)
      stem = std::min(stem, layer_of_op[birth]);
  }
  return stem;
}

std::vector<Bytes> update_transients(const StepProfile& profile, const OperatorRoles& roles,
                                     const std::vector<LayerIndex>& layer_of_value,
                                     std::size_t layers) {
  const Leftovers leftovers = leftovers_of(profile, roles);
  std::vector<Bytes> most(layers);
  LayerIndex last = kNoLayer;
  Bytes alive;
  Bytes peak;  // Since the last write of a parameter.
  for (OpIndex op = 0; op < roles.of_op.size(); ++op) {
    if (!roles.is(op, Role::kUpdate)) {
      alive -= leftovers.gone[op];
      continue;
    }
    const Bytes inside = profile.tape.ops[op].inside_peak_pages * profile.page_size;
    peak = std::max(peak, alive + inside);
    alive += leftovers.born[op];
    bool is_written = false;
    for (const TapeUse& use : uses_of(profile.tape, op)) {
      if (!use.writes || layer_of_value[use.value] == kNoLayer) continue;
      last = layer_of_value[use.value];
      most[last] = std::max(most[last], peak);
      is_written = true;
    }
    // What is there before the next write belongs to the next parameter.
    if (is_written) peak = Bytes();
    alive -= leftovers.gone[op];
  }
  if (last != kNoLayer) most[last] = std::max(most[last], peak);
  return most;
}

}  // namespace spillway::planner
