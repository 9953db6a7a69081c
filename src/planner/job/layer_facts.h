#pragma once

#include <vector>

#include "operator_roles.h"
#include "spillway/planner/partition/model_chain.h"
#include "spillway/profile/step_profile.h"

namespace spillway::planner {

using schedule::kNoLayer;  // An operator that is no forward layer.

/// What forward layers wait for besides reading what others made: values that are overwritten, and
/// what is too small to be seen. `layer_of_op`: by operator, kNoLayer for those that are none.
///
/// Of a profile that knows nothing of small tensors this is a guess on the safe side: all that is
/// recorded behind an operator waits for it when nothing is seen of what it makes; one of which no
/// input is seen waits for the operator before; operators that may not run again (random numbers,
/// unknown effects) keep their order. What is handed on through a small tensor beside a large one
/// stays unseen.
std::vector<LayerDependence> layer_dependences(const profile::StepProfile& profile,
                                               const std::vector<LayerIndex>& layer_of_op);

/// How many layers lead that no gradient reaches: up to the first one that reads a trained
/// parameter, or makes or reads what any operator after the end of forward uses. Parameters too
/// small to be values are not seen, but what their layers read and make is. `layer_of_op` has a
/// layer for each operator, or kNoLayer; `forward_end` is the last operator of forward.
LayerIndex frozen_prefix(const profile::StepProfile& profile,
                         const std::vector<LayerIndex>& layer_of_op, profile::OpIndex forward_end);

/// By layer: the most bytes of transients that are there at once while the optimizer works on its
/// parameters, beside weights, gradients and states. Operators work on the parameter that is
/// written next; `layer_of_value` has the layer of each parameter, and kNoLayer for other values.
/// Operators after the last write count with that one.
std::vector<Bytes> update_transients(const profile::StepProfile& profile,
                                     const OperatorRoles& roles,
                                     const std::vector<LayerIndex>& layer_of_value,
                                     std::size_t layers);

}  // namespace spillway::planner
