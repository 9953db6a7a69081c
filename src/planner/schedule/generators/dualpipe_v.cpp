#include <deque>

#include "action_list_building.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {
namespace {

/// One rank's action list. Leg 0 goes down the ranks, leg 1 comes back.
class DualLegs {
 public:
  DualLegs(std::uint32_t rank, std::uint32_t ranks) : stages_{rank, 2 * ranks - 1 - rank} {}

  void forward_on(std::uint32_t leg) { list_.push_back(forward(stages_[leg], forwards_[leg]++)); }
  void backward_on(std::uint32_t leg, bool is_split) {
    const std::uint32_t i = backwards_[leg]++;
    list_.push_back(is_split ? input_gradient(stages_[leg], i) : backward(stages_[leg], i));
    if (is_split) owed_.push_back(weight_gradient(stages_[leg], i));
  }
  /// Forward of one leg and backward of the other, as one.
  void both(std::uint32_t forward_leg) {
    forward_on(forward_leg);
    list_.back().overlaps_next = true;
    backward_on(1 - forward_leg, /*is_split=*/false);
  }
  void oldest_weight_gradient() {
    if (owed_.empty()) return;
    list_.push_back(owed_.front());
    owed_.pop_front();
  }
  std::vector<Action> take() { return std::move(list_); }

 private:
  std::uint32_t stages_[2];
  std::uint32_t forwards_[2] = {0, 0};
  std::uint32_t backwards_[2] = {0, 0};
  std::deque<Action> owed_;
  std::vector<Action> list_;
};

std::vector<Action> rank_list(std::uint32_t rank, std::uint32_t ranks,
                              std::uint32_t micro_batches) {
  DualLegs legs(rank, ranks);
  const std::uint32_t before_last = ranks - rank - 1;
  // The first micro-batch needs that long to come back from the last rank.
  for (std::uint32_t i = 0; i < 2 * before_last; ++i) legs.forward_on(0);
  for (std::uint32_t i = 0; i <= rank; ++i) {
    legs.forward_on(0);
    legs.forward_on(1);
  }
  // Its gradient is on its way to the last rank. Split backwards let it go on sooner.
  for (std::uint32_t i = 0; i < before_last; ++i) {
    legs.backward_on(1, /*is_split=*/true);
    legs.oldest_weight_gradient();
    legs.forward_on(1);
  }
  for (std::uint32_t i = 0; i < micro_batches + rank + 1 - 2 * ranks; ++i) {
    if (i == 0 && rank == ranks - 1) {  // Apart, so that the ranks before get the gradient sooner.
      legs.forward_on(0);
      legs.backward_on(1, /*is_split=*/false);
    } else {
      legs.both(0);
    }
    legs.both(1);
  }
  for (std::uint32_t i = 0; i < before_last; ++i) {
    legs.backward_on(1, /*is_split=*/false);
    legs.both(1);
  }
  // The second half of what drains is split, so that weight gradients fill the end.
  const std::uint32_t half = (rank + 1) / 2;
  const bool is_odd = rank % 2 == 1;
  for (std::uint32_t i = 0; i <= rank; ++i) {
    legs.backward_on(1, is_odd ? i >= half : i > half);
    legs.backward_on(0, i >= half);
  }
  for (std::uint32_t i = 0; i < before_last; ++i) {
    legs.oldest_weight_gradient();
    legs.backward_on(0, /*is_split=*/true);
  }
  for (std::uint32_t i = 0; i <= rank; ++i) legs.oldest_weight_gradient();
  return legs.take();
}

std::optional<std::string> fault_of_dualpipe_v(const ScheduleRequest& request) {
  // Fewer would be used up before forwards and backwards can run as one.
  if (request.micro_batches >= 2 * request.ranks) return std::nullopt;
  return message(
      "dualpipe-v needs at least {} micro-batches, two for each rank, not {} (or use zb-v)",
      2 * request.ranks, request.micro_batches);
}

Schedule make_dualpipe_v(const ScheduleRequest& request) {
  Schedule schedule =
      one_replica(request.ranks, request.micro_batches, folded_placement(request.ranks));
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank)
    schedule.ranks[rank] = rank_list(rank, request.ranks, request.micro_batches);
  end_with_steps(schedule);
  return schedule;
}

}  // namespace

extern const ScheduleGenerator kDualpipeV{
    "dualpipe-v",
    "two stages per rank in a V, forward and backward of two micro-batches as one",
    "DeepSeek-V3, arXiv 2412.19437, and deepseek-ai/DualPipe; steps as in PyTorch's "
    "ScheduleDualPipeV",
    make_dualpipe_v,
    StagesPerRank::kTwo,
    {.copies = 1, .has_pairs = true},
    fault_of_dualpipe_v};

}  // namespace spillway::planner_schedule
