#include <algorithm>

#include "action_list_building.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {
namespace {

/// Writes down one rank's forwards and input gradients, each kind in the order of micro-batches.
class VOrder {
 public:
  VOrder(std::uint32_t rank, std::uint32_t ranks, std::uint32_t micro_batches)
      : stages_{rank, 2 * ranks - 1 - rank}, micro_batches_(micro_batches) {}

  /// Leg 0 goes down the ranks, leg 1 comes back. Beyond the last micro-batch it only counts.
  void forward_on(std::uint32_t leg) {
    add(forward(stages_[leg], forwards_[leg]));
    ++forwards_[leg];
  }
  void backward_on(std::uint32_t leg) {
    add(input_gradient(stages_[leg], backwards_[leg]));
    ++backwards_[leg];
  }
  std::uint32_t forwards(std::uint32_t leg) const { return forwards_[leg]; }
  std::vector<Action> take() { return std::move(list_); }

 private:
  void add(const Action& action) {
    if (action.micro_batch < micro_batches_) list_.push_back(action);
  }

  std::uint32_t stages_[2];
  std::uint32_t forwards_[2] = {0, 0};
  std::uint32_t backwards_[2] = {0, 0};
  std::uint32_t micro_batches_;
  std::vector<Action> list_;
};

std::vector<Action> rank_order(std::uint32_t rank, std::uint32_t ranks,
                               std::uint32_t micro_batches) {
  // Fewer than 2·ranks - 1 do not fill the V: then the same order, without those that are missing.
  const std::uint32_t filled = std::max(2 * ranks - 1, micro_batches);
  VOrder order(rank, ranks, micro_batches);
  // Until the first micro-batch comes back from the last rank.
  for (std::uint32_t i = 0; i < 2 * (ranks - rank) - 1; ++i) order.forward_on(0);
  // It goes on to rank 0, turns around, and is here again two ticks per rank later.
  for (std::uint32_t i = 0; i < rank; ++i) {
    order.forward_on(1);
    order.forward_on(0);
  }
  // Its gradient goes to the last rank and back. Until it is on leg 0, there are backwards of leg 1
  // alone.
  for (std::uint32_t i = 0; i < ranks - rank; ++i) {
    order.forward_on(1);
    order.backward_on(1);
  }
  // All four in turn: the memory of a rank stays as it is.
  while (order.forwards(1) < order.forwards(0) || order.forwards(0) < filled) {
    if (order.forwards(0) < filled) order.forward_on(0);
    order.backward_on(0);
    order.forward_on(1);
    order.backward_on(1);
  }
  for (std::uint32_t i = 0; i < rank; ++i) {
    order.backward_on(0);
    order.backward_on(1);
  }
  for (std::uint32_t i = 0; i < ranks - rank; ++i) order.backward_on(0);
  return order.take();
}

Schedule make_zb_v(const ScheduleRequest& request) {
  Schedule schedule =
      one_replica(request.ranks, request.micro_batches, folded_placement(request.ranks));
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank)
    schedule.ranks[rank] = rank_order(rank, request.ranks, request.micro_batches);
  // In stashes of stages half as large: what 1F1B holds on its first rank.
  fill_with_weight_gradients(schedule, /*most_held=*/2 * request.ranks);
  end_with_steps(schedule);
  return schedule;
}

}  // namespace

extern const ScheduleGenerator kZbV{
    "zb-v",
    "two stages per rank in a V: no bubble where F, I and W are equal; memory of 1F1B",
    "Qi et al., Zero bubble pipeline parallelism, ICLR 2024, arXiv 2401.10241, section 6; warm-up "
    "counts as in PyTorch's ScheduleZBVZeroBubble",
    make_zb_v,
    StagesPerRank::kTwo,
    {.copies = 1}};

}  // namespace spillway::planner_schedule
