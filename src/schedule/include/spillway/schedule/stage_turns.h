#pragma once

#include <cstdint>
#include <vector>

#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// Which of its rank's stages each one is, in the order of the model, by replica and stage.
inline std::vector<std::vector<std::uint32_t>> turns_of(const Schedule& schedule) {
  std::vector<std::vector<std::uint32_t>> turns;
  for (const auto& placed : schedule.placement) {
    std::vector<std::uint32_t> counts(schedule.ranks.size(), 0);
    auto& of_replica = turns.emplace_back();
    for (const std::uint32_t rank : placed) of_replica.push_back(counts[rank]++);
  }
  return turns;
}

}  // namespace spillway::schedule
