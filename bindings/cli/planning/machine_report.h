#pragma once

#include <array>
#include <string>

#include "planning/report_table.h"
#include "spillway/base/named_values.h"
#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/planner/machine/machine_search.h"

namespace spillway::cli {

// What users call them.

inline constexpr std::array<Named<cluster::PlacementOrder>, 3> kPlacements{
    {{"pipeline", cluster::PlacementOrder::kPipelineFirst},
     {"folded", cluster::PlacementOrder::kFolded},
     {"data-parallel", cluster::PlacementOrder::kDataParallelFirst}}};

inline constexpr std::array<Named<cluster::UpdatePlace>, 2> kUpdatePlaces{
    {{"devices", cluster::UpdatePlace::kDevice}, {"hosts", cluster::UpdatePlace::kHost}}};

inline constexpr std::array<Named<cluster::SwapTarget>, 2> kSwapTargets{
    {{"hosts", cluster::SwapTarget::kHost}, {"disks", cluster::SwapTarget::kDisk}}};

/// The machine that a plan was made for, and what the plan does there.
struct FoundMachine {
  std::string path;  ///< Path of its description.
  cluster::Cluster cluster;
  cluster::JobTiming timing;
  std::vector<machine::MachineRun> runs;  ///< Fastest first; the first is the plan.
};

/// Figures of a plan on its machine, as lines.
std::string machine_text(const FoundMachine& found);
/// All that ran on it as a table, and the load of its links.
std::string machine_tables(const FoundMachine& found);
nlohmann::ordered_json machine_json(const FoundMachine& found);

/// Of the rank that waits longest.
double longest_wait(const cluster::JobTiming& timing, double cluster::JobRank::*wait);
/// Share of the time that failures of so many nodes leave; empty where the description has none.
std::string failures_text(const cluster::Cluster& described, std::uint32_t nodes);
/// The load of links by class.
Table link_table(const cluster::JobTiming& timing);

}  // namespace spillway::cli
