#pragma once

#include <vector>

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

}  // namespace spillway::planner
