#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// An operator of the recorded step that belongs to no layer: backward, update.
inline constexpr std::uint32_t kNoLayer = static_cast<std::uint32_t>(-1);

/// No job has more ranks, pipelines or micro-batches.
inline constexpr std::uint32_t kMostRanksOfPlan = 1U << 16U;

/// The step that a plan was made from. A run whose step has other operators is not that of the
/// plan: it compares their number and their hash.
struct ProfiledStep {
  std::uint32_t operators = 0;      ///< Operators of the whole step, backward and update included.
  std::uint64_t operator_hash = 0;  ///< `profile::OpSequence::identity` of all of them.
  /// The layer whose forward an operator is part of, by its position in the step, up to the last
  /// one of forward. Layers follow each other as they were recorded.
  std::vector<std::uint32_t> layer_of_operator;

  bool operator==(const ProfiledStep&) const = default;
};

/// A part of the model that a rank runs as a whole. Layers count by their places in the plan's
/// order. Bytes are of one micro-batch.
struct PlannedStage {
  std::uint32_t first = 0;  ///< Both ends included.
  std::uint32_t last = 0;
  std::vector<std::uint32_t> recomputed;  ///< Layers that backward recomputes, as they run.
  Bytes stash;                            ///< Stays on the device from forward to backward.
  Bytes swapped;  ///< Leaves it beside the forward, and comes back beside the backward.
  /// The operator that ranks know its begin by, and how many earlier layers have one of that name;
  /// empty: the plan does not tell.
  std::string first_operator{};
  std::uint32_t operators_before = 0;

  bool operator==(const PlannedStage&) const = default;
};

/// The operator of a layer, whose name of a recorded step is "aten::mm #17".
std::string_view operator_of_layer(std::string_view layer_name);

/// The decisions of a plan for the ranks of a job, without the figures that they were made by.
struct ExecutionPlan {
  std::uint32_t rank_count() const { return actions.rank_count() * actions.data_parallel; }

  std::uint32_t layers = 0;          ///< Layers of the model.
  std::optional<ProfiledStep> step;  ///< Nothing: the layers are of no recorded step.
  std::vector<std::uint32_t> order;  ///< The layer at each place; empty: as they were recorded.
  std::vector<PlannedStage> stages;  ///< In the order of the pipeline.
  /// Action lists of one pipeline; `data_parallel` of them run with micro-batches of their own.
  Schedule actions;
  /// In micro-batches as they were recorded. Above 1, the step of a run has the operators of the
  /// recorded one with larger tensors, and another hash.
  std::uint32_t micro_batch_size = 1;
};

/// Why nobody can carry a plan out, in one sentence, or nothing: stages that leave layers out or
/// have them twice, an order that is none, layers without operators, and all that `first_fault`
/// finds in the actions.
std::optional<std::string> plan_fault(const ExecutionPlan& plan);

/// Reads a plan for many ranks, as the planner writes it into a file (format `spillway-job-plan`):
/// what executes it, and nothing of the figures. Throws ConfigError that begins with `name`, the
/// file, and is one line, for text that is no such plan, of a newer format, without the operators
/// of its layers, or with a `plan_fault`.
ExecutionPlan parse_execution_plan(std::string_view text, const std::string& name);

/// Operators in a row, by their positions in the recorded step, both ends included.
struct OperatorRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;

  bool operator==(const OperatorRange&) const = default;
};

/// The forward operators of a stage, ascending. Those of all stages together are the forward
/// operators of the step, each once. Throws PlanError for a plan that knows no operators.
std::vector<OperatorRange> operators_of(const ExecutionPlan& plan, std::uint32_t stage);

/// Those of them that backward runs again.
std::vector<OperatorRange> recomputed_operators_of(const ExecutionPlan& plan, std::uint32_t stage);

/// An action of one rank, and with whom it does that.
struct RankAction {
  Action action;
  std::optional<std::uint32_t> peer;  ///< The other end of a message.

  bool operator==(const RankAction&) const = default;
};

/// A stage on a rank that has its parameters.
struct RankStage {
  std::uint32_t stage = 0;
  std::vector<std::uint32_t> replicas;    ///< Replicas whose micro-batches pass it here, ascending.
  std::vector<OperatorRange> operators;   ///< `operators_of` it.
  std::vector<OperatorRange> recomputed;  ///< `recomputed_operators_of` it.
  Bytes stash;                            ///< As `PlannedStage::stash`.
  Bytes swapped;
  /// Ranks that sum its gradients and step it, in all pipelines, ascending. One that has the stage
  /// and is none of them sends its gradients to the one that is, by its actions.
  std::vector<std::uint32_t> reducers;
};

/// A plan as one rank sees it: its per-rank schedule.
struct RankSchedule {
  std::uint32_t rank = 0;
  std::uint32_t pipeline = 0;       ///< Number of the data-parallel replica.
  std::vector<RankStage> stages;    ///< In the order of the model.
  std::vector<RankAction> actions;  ///< In the order in which it does them.
};

/// The view of one rank. Ranks count over all pipelines: rank r of pipeline k is k · ranks + r.
/// Throws PlanError for a rank that the plan does not have, or a plan that knows no operators. The
/// plan must have no `plan_fault`.
RankSchedule rank_schedule(const ExecutionPlan& plan, std::uint32_t rank);

}  // namespace spillway::schedule
