#include "spillway/planner/schedule/generators.h"
#include "v_pattern.h"

namespace spillway::planner {

static Schedule make_v_half(const ScheduleRequest& request) {
  const std::uint32_t ranks = request.ranks;
  const std::uint32_t gap = ranks % 2 == 0 ? 3 : 0;  // Else two actions would share a tick.
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

}  // namespace spillway::planner
