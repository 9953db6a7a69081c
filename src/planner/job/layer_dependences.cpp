#include "layer_dependences.h"

#include <set>
#include <utility>

namespace spillway::planner {

using profile::OpIndex;
using profile::StepProfile;
using profile::StepTape;
using profile::StorageClass;
using profile::TapeUse;
using profile::TapeValue;

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
      if (!has_input && here > 0) add(here - 1, here);
      if (!tape_.ops[op].is_replayable) add(std::exchange(unrepeatable, here), here);
      if (!has_output) barrier = here;
    }
  }

  const StepProfile& profile_;
  const StepTape& tape_;
  const std::vector<LayerIndex>& layer_of_op_;
  std::set<std::pair<LayerIndex, LayerIndex>> found_;
};

}  // namespace

std::vector<LayerDependence> layer_dependences(const StepProfile& profile,
                                               const std::vector<LayerIndex>& layer_of_op) {
  return DependenceReader(profile, layer_of_op).read();
}

}  // namespace spillway::planner
