#pragma once

#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// By stage, whether its swaps use one direction of the host link at a time. So they do on ranks
/// that are through with all backwards before they turn back to forwards, when nothing is left to
/// bring in while stashes leave: GPipe, GEMS, the last rank of 1F1B, any rank whose micro-batches
/// all fit in flight. One such rank of a stage is enough.
std::vector<bool> swaps_one_way(const Schedule& compute);

/// Sets how long passes through a stage wait for its own swaps, so many bytes of each micro-batch
/// out and in again at so many bytes/s each way. Copies hide behind what the rank computes, be its
/// messages as slow as they are: in one direction behind the forward or the backward alone, in both
/// behind both together.
void set_swap_waits(StageCosts& stage, Bytes swapped, double bytes_per_second, bool is_one_way);

}  // namespace spillway::planner
