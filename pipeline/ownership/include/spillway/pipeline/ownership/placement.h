#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "spillway/base/rank.h"
#include "spillway/schedule/schedule.h"

namespace spillway::pipeline {

/// Which rank computes a stage for a micro-batch. Micro-batches take turns: first through the
/// pipelines beside each other (data parallelism), then through the placements of the stages on
/// their ranks, such as the one in reverse order of GEMS.
class Placement {
 public:
  /// That of a schedule. Throws PlanError for one whose shape is wrong.
  explicit Placement(const schedule::Schedule& schedule);

  std::uint32_t stages() const { return static_cast<std::uint32_t>(by_replica_.front().size()); }
  std::uint32_t ranks() const { return ranks_of_pipeline_ * pipelines_; }
  std::uint32_t pipelines() const { return pipelines_; }
  /// After so many micro-batches it is the turn of the first pipeline and placement again.
  std::uint32_t turns() const {
    return pipelines_ * static_cast<std::uint32_t>(by_replica_.size());
  }
  Rank rank_of(std::uint32_t stage, std::uint64_t micro_batch) const;
  /// Those that a rank computes for some micro-batch, in order.
  std::vector<std::uint32_t> stages_of(Rank rank) const;

 private:
  std::vector<std::vector<std::uint32_t>> by_replica_;  ///< The rank in its pipeline, by stage.
  std::uint32_t ranks_of_pipeline_ = 1;
  std::uint32_t pipelines_ = 1;
};

}  // namespace spillway::pipeline
