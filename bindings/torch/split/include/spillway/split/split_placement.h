#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/rank.h"
#include "spillway/pipeline/ownership/placement.h"
#include "spillway/pipeline/ownership/stage_marks.h"
#include "spillway/pipeline/tasks/action_order.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/schedule/schedule.h"

namespace spillway::split {

/// How a model is put on the ranks of a job.
struct Layout {
  std::string schedule;  ///< Its name, without options.
  pipeline::Placement placement;
  /// By rank: micro-batches that it works on at once. What the settings say, else what the schedule
  /// does: GPipe all, 1F1B as many as there are stages from its first one on, GEMS one.
  std::vector<std::uint64_t> windows;
  /// Of a plan: where its stages begin, but the first; empty: parameters are dealt by bytes.
  std::vector<pipeline::StageMark> marks;
  std::optional<schedule::Schedule> actions{};  ///< Of a plan.
  /// Whether ranks keep to action lists: a window of the user's own has another order.
  bool is_listed = true;

  /// The lists for a step with so many micro-batches in each pipeline: a plan's, whatever their
  /// number, or new ones. Throws ConfigError for a number that the schedule cannot serve.
  pipeline::ActionOrder order_for(std::uint64_t micro_batches) const;
  /// Micro-batches that a rank of each stage works on at once.
  std::vector<double> in_flight() const;
};

/// What `settings`, and the plan that they name, say for a shard of so many ranks. Throws
/// ConfigError for ranks that do not divide into replicas and stages, a schedule that does not
/// exist or cannot serve them, and a plan for another number of ranks, or beside other settings
/// than its own; IoError for a plan that cannot be read.
Layout layout_of(const runtime::Settings& settings, std::uint32_t ranks);

/// Of a job of so many. Throws ConfigError where they do not divide into shards.
std::uint32_t ranks_of_shard(const runtime::Settings& settings, std::uint32_t ranks);

/// What `ranks_of_shard` or `layout_of` would throw on a rank of such a job, or that it was started
/// as one of another shard; or nothing.
std::string objection_to(const runtime::Settings& settings, Rank rank, std::uint32_t ranks);

}  // namespace spillway::split
