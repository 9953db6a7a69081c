#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/partition/model_chain.h"
#include "spillway/planner/schedule/schedule_timing.h"
#include "spillway/schedule/execution_plan.h"

namespace spillway::job {

/// What tells one model from another in a plan for it: its layers, not what they take. So a plan
/// may be held against a later profile of the same model.
struct ModelIdentity {
  std::uint32_t layers = 0;
  std::uint64_t name_hash = 0;  ///< Hash of all names, in the order of the profile.

  bool operator==(const ModelIdentity&) const = default;
};

/// The same for equal names in every build and on every machine.
ModelIdentity identity_of(const partition::ModelChain& chain);

/// Throws PlanError with both counts and hashes, where the model of the plan in the file `plan` is
/// not the chain, which the profile in the file `profile` has.
void require_same_model(const ModelIdentity& planned, const std::string& plan,
                        const partition::ModelChain& chain, const std::string& profile);

/// One stage in a file: its layers by place in the order and by name, both ends included, and what
/// it does about its memory.
struct JobFileStage {
  partition::LayerIndex first = 0;
  partition::LayerIndex last = 0;
  std::string first_name;
  std::string last_name;
  std::string begins_with;  ///< The first of its operators that not every rank runs.
  /// Layers of earlier places whose operator has that name.
  std::uint32_t operators_before = 0;
  std::vector<partition::ChosenPoint>
      recomputed;     ///< Layers that backward recomputes, as they run.
  Bytes whole_stash;  ///< Bytes of a micro-batch before anything is swapped or recomputed.
};

/// A plan for many ranks as a file keeps it: what each rank does, and what that was reckoned with.
/// job_format.md describes the format.
struct JobFile {
  std::string partitioner;
  ModelIdentity model;  ///< Model that the layers are of.
  /// The step that these were recorded in; nothing: in none, as layers of a list of costs.
  std::optional<schedule::ProfiledStep> step;
  std::uint32_t data_parallel = 1;
  std::uint32_t micro_batches = 1;  ///< Micro-batches of all data-parallel replicas.
  std::uint32_t batch = 1;          ///< The same in micro-batches as they were profiled.
  Bytes device_memory = partition::kNoLimit;
  Bytes host_memory = partition::kNoLimit;  ///< Limit of each rank for swapped data.
  layer_order::LayerOrder
      order;  ///< Order that the stages count places in; empty: that of the model.
  std::vector<JobFileStage> stages;
  schedule::Schedule actions;             ///< Action lists of one data-parallel replica.
  planner_schedule::ScheduleCosts costs;  ///< Costs of the same stages.
  std::vector<Bytes> fixed;  ///< By rank of a data-parallel replica: what no action moves.
  /// Whether swapped data goes on to the disks of the host, which then has no limit.
  bool swaps_to_disks = false;
  double step_seconds = 0.0;
  double bound_seconds = 0.0;
  double bubble = 0.0;  ///< Share of all ranks' step that is not compute.
  std::vector<Bytes> peaks,
      hosts;  ///< By rank of a data-parallel replica, as `RankMemory` has them.
  /// The machine that the plan was made for, a description as JSON: see `to_text(Cluster)`. Empty:
  /// none. Whoever runs the plan there reads it; here it is any object.
  std::string cluster;
};

JobFile describe_job(const JobPlan& plan, const partition::ModelChain& chain);

/// The part of a plan that ranks execute (`schedule::rank_schedule`).
schedule::ExecutionPlan execution_of(const JobFile& file);

/// The file as JSON.
std::string to_text(const JobFile& file);

/// Reads what `to_text` wrote. Throws ConfigError that begins with `name` for text that is none, of
/// a newer format, with a key that the format does not have, with a partitioner or schedule that
/// nobody has, or whose action lists and figures do not belong together. What is read need not
/// work: see `job_fault`.
JobFile parse_job_file(std::string_view text, const std::string& name);

/// The reason why a plan is impossible, in one sentence, or nothing. Looks for, in this order: what
/// `schedule::plan_fault` finds in stages, order, operators and actions; actions that need more
/// memory than the devices have; ranks that hold more than their device while the action lists run,
/// or more on their host than it has for them; stages whose stash is not what swaps leave of it, or
/// swaps over a link without a rate; figures that are not what the actions make, as when somebody
/// changed the one or the other.
std::optional<std::string> job_fault(const JobFile& file);

}  // namespace spillway::job
