#include "drawn_placement.h"

namespace spillway::pipeline {

std::vector<DrawnPlacement> drawn_placements() {
  return {{"two_stages", 2, 1, false},
          {"four_stages", 4, 1, false},
          {"inverted_by_turns", 4, 1, true},
          {"inverted_with_a_middle", 3, 1, true},
          {"pipelines_of_one", 1, 4, false},
          {"two_pipelines", 2, 2, false},
          {"inverted_in_four_pipelines", 4, 4, true}};
}

Placement placement_of(const DrawnPlacement& drawn) {
  schedule::Schedule schedule;
  schedule.stages = drawn.stages;
  schedule.micro_batches = 1;
  schedule.placement.push_back(schedule::round_placement(drawn.stages, drawn.stages));
  if (drawn.has_reverse) schedule.placement.push_back(schedule::reversed_placement(drawn.stages));
  schedule.ranks.resize(drawn.stages);
  schedule.data_parallel = drawn.pipelines;
  return Placement(schedule);
}

std::vector<std::size_t> even_cuts(std::size_t parameters, std::uint32_t stages) {
  std::vector<std::size_t> cuts;
  for (std::uint32_t i = 0; i < stages; ++i) cuts.push_back(parameters * i / stages);
  return cuts;
}

}  // namespace spillway::pipeline
