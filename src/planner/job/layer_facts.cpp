#include "layer_facts.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "spillway/profile/autograd_links.h"

namespace spillway::job {

using profile::OpIndex;
using profile::StepProfile;
using profile::StepTape;
using profile::StorageClass;
using profile::TapeUse;
using profile::TapeValue;
using profile::ValueIndex;

namespace {

/// The last operator of forward in imported graphs, which call all that follows so.
std::optional<OpIndex> named_forward_end(const StepProfile& profile) {
  for (OpIndex op = 1; op < profile.tape.ops.size(); ++op)
    if (profile.kinds[profile.kind_of_op[op]].name.ends_with(" backward")) return op - 1;
  return std::nullopt;
}

/// Forward reads each parameter that is trained: its last operator is none before the latest of
/// their first uses. 0 where nothing is used.
OpIndex latest_first_read(const StepProfile& profile) {
  std::vector<bool> is_known(profile.tape.values.size(), false);
  OpIndex latest = 0;
  for (OpIndex op = 0; op < profile.tape.ops.size(); ++op)
    for (const TapeUse& use : profile::uses_of(profile.tape, op)) {
      const StorageClass kind = profile.class_of_value[use.value];
      // Backward and update alone touch these, so forward is over.
      if (kind == StorageClass::kOptimizerState || kind == StorageClass::kGradient) return latest;
      if (kind != StorageClass::kParameter || use.writes || is_known[use.value]) continue;
      is_known[use.value] = true;
      latest = op;
    }
  return latest;
}

/// Square roots of moments, and what is made of them.
bool is_left_by_update(const TapeValue& value, const std::vector<Role>& of_op) {
  return value.birth < of_op.size() && of_op[value.birth] == Role::kUpdate &&
         value.death != profile::kSurvives;
}

/// `of_op` has the roles of all operators before.
bool is_update(const StepProfile& profile, OpIndex op, OpIndex forward_end,
               const std::vector<Role>& of_op) {
  const auto uses = profile::uses_of(profile.tape, op);
  return std::any_of(uses.begin(), uses.end(), [&](const TapeUse& use) {
    const StorageClass kind = profile.class_of_value[use.value];
    return kind == StorageClass::kOptimizerState ||
           (kind == StorageClass::kParameter && use.writes) ||
           (kind == StorageClass::kGradient && op <= forward_end) ||
           (op > forward_end && is_left_by_update(profile.tape.values[use.value], of_op));
  });
}

/// As autograd knew them. Of what it keeps no account of, the rest of a step decides.
OperatorRoles known_roles(const StepProfile& profile, OpIndex forward_end) {
  OperatorRoles roles;
  roles.stash = planner::find_stash(profile.tape, forward_end);
  for (OpIndex op = 0; op < profile.tape.ops.size(); ++op) {
    const OpPhase phase = profile.phase_of_op[op];
    const bool is_accounted = phase == OpPhase::kForward || phase == OpPhase::kBackward;
    const bool is_rest =
        !is_accounted && (op > forward_end || is_update(profile, op, forward_end, roles.of_op));
    // Data that is made ready before comes with forward.
    roles.of_op.push_back(is_rest             ? Role::kUpdate
                          : op <= forward_end ? Role::kForward
                                              : Role::kBackward);
  }
  return roles;
}

class DependenceReader {
 public:
  DependenceReader(const StepProfile& profile,
                   const std::vector<partition::LayerIndex>& layer_of_op)
      : profile_(profile), tape_(profile.tape), layer_of_op_(layer_of_op) {}

  std::vector<partition::LayerDependence> read() {
    add_writes();
    if (profile_.hidden_dependences) {
      for (const profile::HiddenDependence& each : *profile_.hidden_dependences)
        add(layer_of_op_[each.before], layer_of_op_[each.after]);
    } else {
      add_guesses();
    }
    std::vector<partition::LayerDependence> dependences;
    for (const auto& [before, after] : found_) dependences.push_back({before, after});
    return dependences;
  }

 private:
  void add(partition::LayerIndex before, partition::LayerIndex after) {
    if (before != kNoLayer && after != kNoLayer && before < after) found_.emplace(before, after);
  }

  /// Readers wait for the latest write, and a write for all readers since the one before.
  void add_writes() {
    struct Trail {
      partition::LayerIndex writer = kNoLayer;
      std::vector<partition::LayerIndex> readers;
    };
    std::vector<Trail> trails(tape_.values.size());
    for (OpIndex op = 0; op < tape_.ops.size(); ++op) {
      const partition::LayerIndex here = layer_of_op_[op];
      if (here == kNoLayer) continue;
      for (const TapeUse& use : profile::uses_of(tape_, op)) {
        Trail& trail = trails[use.value];
        add(trail.writer, here);
        // A write ends what earlier readers could see, so it starts the list of readers anew.
        if (use.writes) {
          for (const partition::LayerIndex reader : trail.readers) add(reader, here);
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
    partition::LayerIndex barrier = kNoLayer;
    partition::LayerIndex unrepeatable = kNoLayer;
    for (OpIndex op = 0; op < tape_.ops.size(); ++op) {
      const partition::LayerIndex here = layer_of_op_[op];
      if (here == kNoLayer) continue;
      bool has_input = false;
      bool has_output = makes[op] != 0;
      for (const TapeUse& use : profile::uses_of(tape_, op)) {
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
  const std::vector<partition::LayerIndex>& layer_of_op_;
  std::set<std::pair<partition::LayerIndex, partition::LayerIndex>> found_;
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

OperatorRoles operator_roles(const StepProfile& profile) {
  if (const auto end = profile::forward_end_of(profile.phase_of_op))
    return known_roles(profile, *end);
  const std::optional<OpIndex> named = named_forward_end(profile);
  OperatorRoles roles;
  roles.is_guessed = !named;
  roles.stash =
      named ? planner::find_stash(profile.tape, *named) : planner::find_stash(profile.tape);
  const OpIndex read = latest_first_read(profile);
  if (!named && read > roles.stash.forward_end)
    roles.stash = planner::find_stash(profile.tape, read);
  const OpIndex forward_end = roles.stash.forward_end;
  for (OpIndex op = 0; op < profile.tape.ops.size(); ++op)
    roles.of_op.push_back(is_update(profile, op, forward_end, roles.of_op) ? Role::kUpdate
                          : op <= forward_end                              ? Role::kForward
                                                                           : Role::kBackward);
  return roles;
}

std::vector<partition::LayerDependence> layer_dependences(
    const StepProfile& profile, const std::vector<partition::LayerIndex>& layer_of_op) {
  return DependenceReader(profile, layer_of_op).read();
}

partition::LayerIndex frozen_prefix(const profile::StepProfile& profile,
                                    const std::vector<partition::LayerIndex>& layer_of_op,
                                    OpIndex forward_end) {
  const profile::StepTape& tape = profile.tape;
  std::vector<char> is_used(tape.values.size(), 0);
  for (OpIndex op = forward_end + 1; op < tape.ops.size(); ++op)
    for (const TapeUse& use : profile::uses_of(tape, op)) is_used[use.value] = 1;
  // All layers at first; each that is trained or needed later ends the prefix before it.
  partition::LayerIndex stem = 0;
  for (const partition::LayerIndex layer : layer_of_op)
    if (layer != kNoLayer) stem = std::max(stem, layer + 1);
  for (OpIndex op = 0; op <= forward_end; ++op) {
    if (layer_of_op[op] == kNoLayer) continue;
    for (const TapeUse& use : profile::uses_of(tape, op))
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
                                     const std::vector<partition::LayerIndex>& layer_of_value,
                                     std::size_t layers) {
  const Leftovers leftovers = leftovers_of(profile, roles);
  std::vector<Bytes> most(layers);
  partition::LayerIndex last = kNoLayer;
  Bytes alive;
  Bytes peak;  // Since the last write of a parameter.
  for (OpIndex op = 0; op < roles.of_op.size(); ++op) {
    if (!roles.is(op, Role::kUpdate)) {
      // What the update has left may die in an operator that is none of it.
      alive -= leftovers.gone[op];
      continue;
    }
    const Bytes inside = profile.tape.ops[op].inside_peak_pages * profile.page_size;
    peak = std::max(peak, alive + inside);
    alive += leftovers.born[op];
    bool is_written = false;
    for (const TapeUse& use : profile::uses_of(profile.tape, op)) {
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

RecomputeClosure::RecomputeClosure(const StepTape& tape, const std::vector<char>& is_kept,
                                   OpIndex forward_end)
    : tape_(tape),
      is_kept_(is_kept),
      forward_end_(forward_end),
      writers_(tape.values.size()),
      kept_of_(tape.ops.size()) {
  for (OpIndex op = 0; op <= forward_end; ++op)
    for (const TapeUse& use : profile::uses_of(tape, op))
      if (use.writes && tape.values[use.value].birth != op) writers_[use.value].push_back(op);
  for (ValueIndex value = 0; value < tape.values.size(); ++value)
    if (is_kept[value] != 0 && tape.values[value].birth != profile::kCarriedIn)
      kept_of_[tape.values[value].birth].push_back(value);
}

std::optional<double> RecomputeClosure::seconds_of(OpIndex op) const {
  constexpr std::size_t kMostOperators = 64;
  std::set<OpIndex> runs;
  std::vector<OpIndex> waiting{op};
  for (const ValueIndex value : kept_of_[op])
    waiting.insert(waiting.end(), writers_[value].begin(), writers_[value].end());
  double total = 0.0;
  while (!waiting.empty()) {
    const OpIndex next = waiting.back();
    waiting.pop_back();
    // An operator runs again once, however many need it.
    if (!runs.insert(next).second) continue;
    if (runs.size() > kMostOperators || !tape_.ops[next].is_replayable) return std::nullopt;
    total += seconds(tape_.ops[next].time);
    for (const TapeUse& use : profile::uses_of(tape_, next)) {
      const OpIndex birth = tape_.values[use.value].birth;
      if (birth == next || is_there(use, next, op)) continue;
      if (birth == profile::kCarriedIn) return std::nullopt;
      // Made anew, up to how it was read.
      waiting.push_back(birth);
      for (const OpIndex writer : writers_[use.value])
        if (writer < next) waiting.push_back(writer);
    }
  }
  return total;
}

bool RecomputeClosure::is_there(const TapeUse& use, OpIndex reader, OpIndex op) const {
  if (use.writes) return false;  // What is kept must stay as it is.
  const std::vector<OpIndex>& writers = writers_[use.value];
  if (!writers.empty() && writers.back() > reader) return false;
  const TapeValue& value = tape_.values[use.value];
  if (value.birth != profile::kCarriedIn) return is_kept_[use.value] != 0 && value.birth != op;
  // Alive after the end of forward: parameters, and data that backward or the next step still sees.
  return is_kept_[use.value] != 0 || value.death == profile::kSurvives ||
         value.death > forward_end_;
}

}  // namespace spillway::job
