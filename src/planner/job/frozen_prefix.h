#pragma once

#include <vector>

#include "spillway/planner/partition/model_chain.h"
#include "spillway/profile/step_profile.h"

namespace spillway::planner {

/// How many layers lead that no gradient reaches: up to the first one that reads a trained
/// parameter, or makes or reads what any operator after the end of forward uses. Parameters too
/// small to be values are not seen, but what their layers read and make is. `layer_of_op` has a
/// layer for each operator, or kNoLayer; `forward_end` is the last operator of forward.
LayerIndex frozen_prefix(const profile::StepProfile& profile,
                         const std::vector<LayerIndex>& layer_of_op, profile::OpIndex forward_end);

}  // namespace spillway::planner
