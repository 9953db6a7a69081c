#include <algorithm>

#include "action_list_building.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {
namespace {

/// The k-th pass of a rank: `ranks` micro-batches through its first stage, the same through its
/// next one, and so on; then the next `ranks` micro-batches.
struct Pass {
  Pass(const ScheduleRequest& request, std::uint32_t k) {
    const std::uint32_t round = request.ranks * request.stages_per_rank;
    turn = k % round / request.ranks;
    micro_batch = k / round * request.ranks + k % request.ranks;
  }

  std::uint32_t turn = 0;  // Which of the rank's stages, counted in the order of the passes.
  std::uint32_t micro_batch = 0;
};

std::optional<std::string> fault_of_interleaved(const ScheduleRequest& request) {
  const std::uint32_t ranks = request.ranks;
  // While `ranks` micro-batches pass a stage, the first of them wanders to the rank's next stage.
  // With fewer, its turn there would come before it.
  if (request.micro_batches % ranks == 0) return std::nullopt;
  return message(
      "interleaved needs a multiple of its {} ranks as micro-batches, not {} (use {}, or 1f1b)",
      ranks, request.micro_batches, (request.micro_batches / ranks + 1) * ranks);
}

Schedule make_interleaved(const ScheduleRequest& request) {
  const std::uint32_t ranks = request.ranks;
  const std::uint32_t turns = request.stages_per_rank;
  Schedule schedule =
      one_replica(ranks, request.micro_batches, round_placement(ranks, ranks * turns));
  const std::uint32_t passes = request.micro_batches * turns;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    auto& list = schedule.ranks[rank];
    const auto add_forward = [&](std::uint32_t k) {
      const Pass pass(request, k);
      list.push_back(forward(pass.turn * ranks + rank, pass.micro_batch));
    };
    // The last rank turns around when a micro-batch is on its last stage. Each rank before it is
    // two passes earlier: one for the way there, one for the way back.
    const std::uint32_t warm_up = std::min(passes, 2 * (ranks - rank - 1) + (turns - 1) * ranks);
    for (std::uint32_t k = 0; k < warm_up; ++k) add_forward(k);
    for (std::uint32_t k = 0; k < passes; ++k) {
      if (warm_up + k < passes) add_forward(warm_up + k);
      const Pass pass(request, k);
      list.push_back(backward((turns - 1 - pass.turn) * ranks + rank, pass.micro_batch));
    }
  }
  end_with_steps(schedule);
  return schedule;
}

}  // namespace

extern const ScheduleGenerator kInterleaved{
    "interleaved",
    "1F1B over several stages per rank: less bubble, more messages",
    "Narayanan et al., Megatron-LM, SC 2021, arXiv 2104.04473",
    make_interleaved,
    StagesPerRank::kAsRequested,
    {.copies = 1, .is_whole = true},
    fault_of_interleaved};

}  // namespace spillway::planner_schedule
