#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/measured_model.h"

namespace spillway::job {

/// Layers that go from a rank to a neighbour in one round of a flush: one copy of their weights,
/// gradients, optimizer states and buffers. Of schedules with two copies of a stage both go; a rank
/// that has the layers already, in its copy of the other stage, gets no message.
struct RankMove {
  std::uint32_t round = 0;  ///< From 0: layers that pass several stages are handed on.
  partition::LayerIndex first_layer =
      0;  ///< Places in the order of the pipeline, both ends included.
  partition::LayerIndex last_layer = 0;
  std::uint32_t from_stage = 0;
  std::uint32_t to_stage = 0;
  std::uint32_t from_rank =
      0;  ///< Rank in a pipeline; equals `to_rank` where one rank has both stages.
  std::uint32_t to_rank = 0;
  Bytes bytes;           ///< Bytes of the message; 0 within a rank.
  double seconds = 0.0;  ///< Seconds of that message alone.
};

/// Other stages for the same ranks, and what it takes to get there: one flush, the end of a step,
/// with rounds of messages between neighbours and no step between them.
struct RebalanceChoice {
  std::vector<partition::LayerIndex> begins;  ///< First layer of each stage.
  std::vector<RankMove>
      moves;  ///< Moves of one pipeline; all data-parallel replicas do the same at the same time.
  std::uint32_t rounds = 0;
  Bytes bytes;  ///< Bytes of one pipeline.
  /// Each round lasts as long as its busiest link, as the schedule's simulator has links: one
  /// message at a time from a rank to another one, both directions and all pairs at once.
  double move_seconds = 0.0;
  double step_seconds = 0.0;  ///< By the schedule's simulator.

  /// The fewest steps behind which the moves have paid against steps of that length (infinite: they
  /// are not possible any more, so at once); nothing where they never do.
  std::optional<double> pays_after(double step_before) const;
};

/// A stored job on the costs of a new profile.
struct RebalancedJob {
  /// The stages as they are; nothing where the ranks have no room for them any more.
  std::optional<JobPlan> before;
  std::string refusal;  ///< Why.
  /// What moving layers between neighbours reaches, from the fewest bytes on, the cuts of a fresh
  /// plan among them. Those that cannot be run are left out, and those than which another one is no
  /// slower, with no more bytes and no longer a flush.
  std::vector<RebalanceChoice> choices;
  /// Quicker ones that ranks have no room for while layers are on their way.
  std::size_t without_room = 0;
  /// Of `choices`: the quickest, or where steps are left to count the one that gains most in them.
  /// Nothing where none pays: the stages stay.
  std::optional<std::size_t> chosen;
  JobPlan plan;  ///< How the job goes on.

  double step_before() const {
    return before ? before->step_seconds : std::numeric_limits<double>::infinity();
  }
};

/// The job of a stored plan with a model that was measured anew: its ranks, schedule,
/// micro-batches, memory, links, order of the layers and stages. `name` and `profile` are the files
/// of both. Throws PlanError for a model of other layers (`require_same_model`), ConfigError for
/// action lists that the schedule does not make.
JobRequest request_of(const JobFile& file, const std::string& name, MeasuredModel model,
                      const std::string& profile);

/// On-line re-balancing, after vPipe (IEEE TPDS 33(3), 2022): layers move between neighbouring
/// stages, which swap and recompute what is best for them then; the schedule stays: see
/// rebalance.md. `request` is one of `request_of`, whose links and memory may have been said anew.
/// Without `steps_left` the quickest step counts. Deterministic and pure; some fifty plans at
/// most.
///
/// Throws PlanError with the reason where neither the stages as they are nor any choice fits, and
/// ConfigError for a request that no plan can meet.
RebalancedJob rebalance_job(const JobRequest& request, std::optional<double> steps_left);

}  // namespace spillway::job
