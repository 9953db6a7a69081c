#include "generator_families.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_v_half(const ScheduleRequest& request) {
  const std::uint32_t ranks = request.ranks;
  const std::uint32_t gap = ranks % 2 == 0 ? 3 : 0;  // Else two actions would share a tick.
  // Two ticks per rank on the way down and one on the way back, forward and backward alike: a stash
  // of the way down lives 6p - 3r - 2 ticks on rank r of p, one of the way back 3r + 1. Together
  // they are the same on all ranks, and with a micro-batch each 6 ticks p half stages are held.
  return repeated_v(request, [=](std::uint32_t rank) {
    return VPattern{2 * rank, 3 * ranks - rank - 2, 3 * ranks + gap + 2 * rank - 1,
                    6 * ranks + gap - rank - 2};
  });
}

extern const ScheduleGenerator kVHalf{
    "v-half",
    "two stages per rank in a V: half the memory of 1F1B, half its bubble",
    "Qi et al., Pipeline parallelism with controllable memory, NeurIPS 2024, arXiv 2405.15362; "
    "offsets of sail-sg/zero-bubble-pipeline-parallelism",
    make_v_half,
    StagesPerRank::kTwo,
    {.copies = 1}};

}  // namespace spillway::planner_schedule
