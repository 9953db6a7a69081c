#pragma once

#include <vector>

#include "operator_roles.h"
#include "spillway/planner/partition/model_chain.h"
#include "spillway/profile/step_profile.h"

namespace spillway::planner {

/// By layer: the most bytes of transients that are there at once while the optimizer works on its
/// parameters, beside weights, gradients and states. Operators work on the parameter that is
/// written next; `layer_of_value` has the layer of each parameter, and kNoLayer for other values.
/// Operators after the last write count with that one.
std::vector<Bytes> update_transients(const profile::StepProfile& profile,
                                     const OperatorRoles& roles,
                                     const std::vector<LayerIndex>& layer_of_value,
                                     std::size_t layers);

}  // namespace spillway::planner
