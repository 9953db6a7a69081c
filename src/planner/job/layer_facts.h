#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/planner/forward_stash.h"
#include "spillway/planner/partition/model_chain.h"
#include "spillway/profile/step_profile.h"

namespace spillway::job {

using schedule::kNoLayer;  // An operator that is no forward layer.

enum class Role : std::uint8_t { kForward, kBackward, kUpdate };

/// Roles of the operators of a step.
struct OperatorRoles {
  planner::ForwardStash stash;  ///< With the last operator of forward.
  std::vector<Role> of_op;      ///< By operator.
  bool is_guessed = false;      ///< Neither phases nor names of operators told where forward ends.

  bool is(profile::OpIndex op, Role role) const { return of_op[op] == role; }
};

/// As the profile tells by phases: forward ends before the first operator of backward, the update
/// is what autograd keeps no account of, behind that or by what it touches.
///
/// A guess for profiles without phases: imported graphs call their backward operators so; elsewhere
/// forward ends where most waits. The update is what touches states of the optimizer, writes
/// parameters, or works on what such operators leave.
OperatorRoles operator_roles(const profile::StepProfile& profile);

/// What forward layers wait for besides reading what others made: values that are overwritten, and
/// what is too small to be seen. `layer_of_op`: by operator, kNoLayer for those that are none.
///
/// Of a profile that knows nothing of small tensors this is a guess on the safe side: all that is
/// recorded behind an operator waits for it when nothing is seen of what it makes; one of which no
/// input is seen waits for the operator before; operators that may not run again (random numbers,
/// unknown effects) keep their order. What is handed on through a small tensor beside a large one
/// stays unseen.
std::vector<partition::LayerDependence> layer_dependences(
    const profile::StepProfile& profile, const std::vector<partition::LayerIndex>& layer_of_op);

/// How many layers lead that no gradient reaches: up to the first one that reads a trained
/// parameter, or makes or reads what any operator after the end of forward uses. Parameters too
/// small to be values are not seen, but what their layers read and make is. `layer_of_op` has a
/// layer for each operator, or kNoLayer; `forward_end` is the last operator of forward.
partition::LayerIndex frozen_prefix(const profile::StepProfile& profile,
                                    const std::vector<partition::LayerIndex>& layer_of_op,
                                    profile::OpIndex forward_end);

/// By layer: the most bytes of transients that are there at once while the optimizer works on its
/// parameters, beside weights, gradients and states. Operators work on the parameter that is
/// written next; `layer_of_value` has the layer of each parameter, and kNoLayer for other values.
/// Operators after the last write count with that one.
std::vector<Bytes> update_transients(const profile::StepProfile& profile,
                                     const OperatorRoles& roles,
                                     const std::vector<partition::LayerIndex>& layer_of_value,
                                     std::size_t layers);

/// Cost of recomputing what a forward operator made, as forward left it.
class RecomputeClosure {
 public:
  /// `is_kept`: by value, whether it waits for backward anyway. Keeps references.
  RecomputeClosure(const profile::StepTape& tape, const std::vector<char>& is_kept,
                   profile::OpIndex forward_end);

  /// The time of the operator, of those that write what it made and is kept in place, and of all
  /// that these read and nobody keeps as they read it. Nothing where one of them may not run again
  /// or writes what was there before the step, an input is gone, or more than 64 operators would
  /// run.
  std::optional<double> seconds_of(profile::OpIndex op) const;

 private:
  /// Whether a value is there as `reader` read it, while `op` runs again.
  bool is_there(const profile::TapeUse& use, profile::OpIndex reader, profile::OpIndex op) const;

  const profile::StepTape& tape_;
  const std::vector<char>& is_kept_;
  profile::OpIndex forward_end_;
  /// By value: forward operators that write it in place, in order.
  std::vector<std::vector<profile::OpIndex>> writers_;
  std::vector<std::vector<profile::ValueIndex>> kept_of_;  ///< By the operator that makes it.
};

}  // namespace spillway::job
