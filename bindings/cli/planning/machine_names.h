#pragma once

#include <array>

#include "spillway/base/named_values.h"
#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::cli {

// What the first of each list is called, holds where nothing is said.

inline constexpr std::array<Named<planner::PlacementOrder>, 3> kPlacements{
    {{"pipeline", planner::PlacementOrder::kPipelineFirst},
     {"folded", planner::PlacementOrder::kFolded},
     {"data-parallel", planner::PlacementOrder::kDataParallelFirst}}};

inline constexpr std::array<Named<planner::UpdatePlace>, 2> kUpdatePlaces{
    {{"devices", planner::UpdatePlace::kDevice}, {"hosts", planner::UpdatePlace::kHost}}};

inline constexpr std::array<Named<planner::SwapTarget>, 2> kSwapTargets{
    {{"hosts", planner::SwapTarget::kHost}, {"disks", planner::SwapTarget::kDisk}}};

/// The value of that name, the first one without a word. Throws ConfigError that begins with the
/// option.
template <typename List>
auto choice_in(const char* option, const std::string& word, const List& list) {
  if (word.empty()) return list.front().value;
  try {
    return value_named(word, list, "value");
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", option, error.what());
  }
}

}  // namespace spillway::cli
