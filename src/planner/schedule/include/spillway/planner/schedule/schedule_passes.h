#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/planner/schedule/refusal.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner_schedule {

/// How copies of the same stage stay equal.
enum class CopyRule : std::uint8_t {
  kReduced,      ///< All of them sum their gradients, and each is stepped.
  kSingleOwner,  ///< The rank of replica 0 lends its weights, gets gradients back and steps alone.
};

struct CommunicationOptions {
  std::uint32_t data_parallel = 1;  ///< Pipelines that sum their gradients.
  CopyRule copy_rule = CopyRule::kReduced;
  /// All reductions at the end of the action lists, the last stage first, as in MPI4DL; else each
  /// as soon as its gradients are there, beside the backward of other stages.
  bool reduces_at_end = false;
};

/// Adds messages, reductions and the exchanges between copies to action lists of compute and steps.
/// The action lists run once under `costs`; each message then stands in both action lists at the
/// moment when what it carries was made. So all action lists follow one order of everything, and
/// cannot deadlock, however long anything takes, even if each end waits for the other.
///
/// Refused are steps in mid-flight where a stage has several copies, and a single owner where no
/// stage has exactly two, or where the second copy is in use before its owner is through with its
/// first forwards (Chimera). Throws PlanError for action lists that have communication already.
OrRefusal<Schedule> with_communication(const Schedule& schedule, const ScheduleCosts& costs,
                                       const CommunicationOptions& options = {});
/// Under equal times of all stages.
OrRefusal<Schedule> with_communication(const Schedule& schedule,
                                       const CommunicationOptions& options = {});

/// Runs of the simulator in a search for idle-time offload, which bound its time.
inline constexpr std::size_t kMostOffloadRuns = 200;

/// Forwards of these ranks keep their input alone; the rest is recomputed before the backward,
/// where the rank may still wait for its gradient. Stashes that are swapped stay so.
Schedule with_recomputation(const Schedule& schedule, std::span<const std::uint32_t> ranks);

/// Stashes leave behind their forward and come back before their backward, where the time in
/// between holds both copies and other compute of the rank: the longest-lived ones first, and only
/// such as do not make the step longer under `costs`. Runs the simulator up to `most_runs` times.
Schedule with_swapped_stashes(const Schedule& schedule, const ScheduleCosts& costs,
                              std::size_t most_runs = kMostOffloadRuns);

/// Stashes of the first so many stages of each rank, in the order of the model, leave behind their
/// forward and come back as late as the link allows, and a backward ahead of their own: what
/// PipeOffload (arXiv 2503.01328) calls half (v/2 of v stages, rounded up) and full offload. First
/// stages are away longest. What would have to come back before it is away stays. Copies count with
/// the times that the action lists have without them; nothing is measured, so what has more to move
/// than the link carries is made longer.
Schedule with_offloaded_stages(const Schedule& schedule, const ScheduleCosts& costs,
                               std::uint32_t stages_per_rank);

/// Replicas in turn forth and back (GEMS): of a rank's two copies of parameters, the one not in use
/// is on the host. The other one comes back beside the last backward before its turn. For action
/// lists that are complete otherwise: both copies must be there for their steps. Refused are
/// schedules without two copies on a rank, whose weights move already, or in which two actions run
/// as one.
OrRefusal<Schedule> with_parked_weights(const Schedule& schedule);

/// Into `costs.memory`, for GEMS or any other: stashes swapped in idle time; that, with the
/// ranks that still hold more recomputing the rest; with the ranks whose copies are too slow
/// recomputing all of theirs; recomputation alone; or half or all of each rank's stages
/// offloaded. What fits, and is the fastest, or else what comes nearest. Throws ConfigError without
/// a limit.
Schedule with_memory_fitted(const Schedule& schedule, const ScheduleCosts& costs,
                            std::size_t most_runs = kMostOffloadRuns);

}  // namespace spillway::planner_schedule
