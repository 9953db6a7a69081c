#include "generator_families.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_v_min(const ScheduleRequest& request) {
  const std::uint32_t ranks = request.ranks;
  const std::uint32_t gap = ranks % 3 == 0 ? 2 : 0;  // Else two actions would share a tick.
  // One tick per rank both ways: stashes live 4p - 2r - 1 and 2r + 1 ticks on rank r of p, so two
  // thirds of p half stages are held, on all ranks alike. Nothing is sooner through the ranks.
  return repeated_v(request, [=](std::uint32_t rank) {
    return VPattern{rank, 2 * ranks - rank - 1, 2 * ranks + gap + rank, 4 * ranks + gap - rank - 1};
  });
}

extern const ScheduleGenerator kVMin{
    "v-min",
    "two stages per rank in a V: a third of the memory of 1F1B, 2/3 of its bubble",
    "Qi et al., Pipeline parallelism with controllable memory, NeurIPS 2024, arXiv 2405.15362; "
    "offsets of sail-sg/zero-bubble-pipeline-parallelism",
    make_v_min,
    StagesPerRank::kTwo,
    {.copies = 1}};

}  // namespace spillway::planner_schedule
