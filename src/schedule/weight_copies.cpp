#include "spillway/schedule/weight_copies.h"

#include "spillway/base/assert.h"

namespace spillway::schedule {
namespace {

std::uint64_t key_of(std::uint32_t rank, std::uint32_t stage) {
  return std::uint64_t{rank} << 32U | stage;
}

}  // namespace

WeightCopies::WeightCopies(const Schedule& schedule) : holders_(schedule.stages) {
  for (const auto& ranks : schedule.placement)
    for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
      const auto id = static_cast<std::uint32_t>(copies_.size());
      if (!index_.emplace(key_of(ranks[stage], stage), id).second) continue;
      copies_.push_back({ranks[stage], stage});
      holders_[stage].push_back(ranks[stage]);
    }
  is_reducer_.resize(copies_.size(), false);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (const Action& action : schedule.ranks[rank])
      if (action.kind == ActionKind::kStep) is_reducer_[at(rank, action.stage)] = true;
  reducers_ = holders_;
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
    std::erase_if(reducers_[stage],
                  [&](std::uint32_t rank) { return !is_reducer_[at(rank, stage)]; });
    if (!reducers_[stage].empty()) continue;
    reducers_[stage] = holders_[stage];
    for (const std::uint32_t rank : holders_[stage]) is_reducer_[at(rank, stage)] = true;
  }
}

std::uint32_t WeightCopies::at(std::uint32_t rank, std::uint32_t stage) const {
  const auto found = index_.find(key_of(rank, stage));
  SPILLWAY_ASSERT(found != index_.end());
  return found->second;
}

std::vector<bool> resident_at_start(const Schedule& schedule, const WeightCopies& copies) {
  std::vector<bool> is_resident(copies.size(), true);
  std::vector<bool> is_moved(copies.size(), false);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (const Action& action : schedule.ranks[rank]) {
      const bool comes =
          action.kind == ActionKind::kReceiveWeights || action.kind == ActionKind::kSwapInWeights;
      if (!comes && action.kind != ActionKind::kSwapOutWeights) continue;
      const std::uint32_t copy = copies.at(rank, action.stage);
      if (!is_moved[copy]) is_resident[copy] = !comes;
      is_moved[copy] = true;
    }
  return is_resident;
}

int move_weights(const Action& action, std::uint32_t copy, std::vector<bool>& is_resident) {
  const bool was_resident = is_resident[copy];
  if (action.kind == ActionKind::kReceiveWeights || action.kind == ActionKind::kSwapInWeights)
    is_resident[copy] = true;
  else if (action.kind == ActionKind::kSwapOutWeights)
    is_resident[copy] = false;
  return static_cast<int>(is_resident[copy]) - static_cast<int>(was_resident);
}

}  // namespace spillway::schedule
