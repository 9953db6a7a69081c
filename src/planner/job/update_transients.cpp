#include "update_transients.h"

#include <algorithm>

#include "layer_dependences.h"

namespace spillway::planner {

using profile::OpIndex;
using profile::StepProfile;
using profile::TapeUse;
using profile::TapeValue;

namespace {

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
    if (is_written) peak = Bytes();
    alive -= leftovers.gone[op];
  }
  if (last != kNoLayer) most[last] = std::max(most[last], peak);
  return most;
}

}  // namespace spillway::planner
