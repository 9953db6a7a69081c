#include "spillway/pipeline/ownership/placement.h"

#include "spillway/base/assert.h"

namespace spillway::pipeline {

Placement::Placement(const schedule::Schedule& schedule)
    : by_replica_(schedule.placement),
      ranks_of_pipeline_(schedule.rank_count()),
      pipelines_(schedule.data_parallel) {
  schedule::check_shape(schedule);
}

Rank Placement::rank_of(std::uint32_t stage, std::uint64_t micro_batch) const {
  SPILLWAY_ASSERT(stage < stages());
  const auto pipeline = static_cast<std::uint32_t>(micro_batch % pipelines_);
  const std::size_t replica = micro_batch / pipelines_ % by_replica_.size();
  return Rank(pipeline * ranks_of_pipeline_ + by_replica_[replica][stage]);
}

std::vector<std::uint32_t> Placement::stages_of(Rank rank) const {
  std::vector<std::uint32_t> computed;
  for (std::uint32_t stage = 0; stage < stages(); ++stage)
    for (std::uint32_t turn = 0; turn < turns(); ++turn)
      if (rank_of(stage, turn) == rank) {
        computed.push_back(stage);
        break;
      }
  return computed;
}

}  // namespace spillway::pipeline
