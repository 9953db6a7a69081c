#pragma once

#include <array>

#include "spillway/base/named_values.h"
#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::cli {

inline constexpr std::array<Named<planner::PlacementOrder>, 3> kPlacements{
    {{"pipeline", planner::PlacementOrder::kPipelineFirst},
     {"folded", planner::PlacementOrder::kFolded},
     {"data-parallel", planner::PlacementOrder::kDataParallelFirst}}};

inline constexpr std::array<Named<planner::UpdatePlace>, 2> kUpdatePlaces{
    {{"devices", planner::UpdatePlace::kDevice}, {"hosts", planner::UpdatePlace::kHost}}};

inline constexpr std::array<Named<planner::SwapTarget>, 2> kSwapTargets{
    {{"hosts", planner::SwapTarget::kHost}, {"disks", planner::SwapTarget::kDisk}}};

}  // namespace spillway::cli
