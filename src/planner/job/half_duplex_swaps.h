#pragma once

#include <vector>

#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// By stage, whether its swaps use one direction of the host link at a time. So they do on ranks
/// that are through with all backwards before they turn back to forwards, when nothing is left to
/// bring in while stashes leave: GPipe, GEMS, the last rank of 1F1B, any rank whose micro-batches
/// all fit in flight. One such rank of a stage is enough.
std::vector<bool> half_duplex_stages(const Schedule& compute);

}  // namespace spillway::planner
