#include "update_check.h"

#include <unordered_set>
#include <utility>
#include <vector>

#include "spillway/schedule/messages.h"

namespace spillway::schedule {
namespace {

using Fault = std::optional<ScheduleFault>;

constexpr const char* kEarly = "it comes before the last gradient of its stage";
constexpr const char* kTwice = "it comes a second time";

/// Follows the gradients of every copy of the weights up to its step. One rank's action list
/// decides about its own copies alone.
class UpdateWalk {
 public:
  UpdateWalk(const Schedule& schedule, const WeightCopies& copies)
      : schedule_(schedule),
        copies_(copies),
        states_(copies.size()),
        is_flushed_(schedule.stages, true),
        is_summed_(has_messages(schedule) || schedule.data_parallel > 1) {
    for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
      for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
        const Action& action = schedule.ranks[rank][i];
        if (is_model_compute(action.kind) || action.kind == ActionKind::kReceiveGradients)
          state(rank, action).gradients_end = i + 1;
        is_summed_ |= action.kind == ActionKind::kReduce;
        if (action.kind != ActionKind::kStep) continue;
        has_steps_ = true;
        if (action.micro_batch != kNoMicroBatch) is_flushed_[action.stage] = false;
      }
  }

  /// Why the action cannot come here.
  const char* apply(std::uint32_t rank, std::size_t position, const Action& action) {
    switch (action.kind) {
      case ActionKind::kStep: return apply_step(rank, position, action);
      case ActionKind::kReduce:
        if (!copies_.is_reducer(copies_.at(rank, action.stage)))
          return "other copies of its stage are stepped, this one is not";
        if (is_early(rank, position, action)) return kEarly;
        return std::exchange(state(rank, action).is_reduced, true) ? kTwice : nullptr;
      case ActionKind::kSendGradients:
        if (is_early(rank, position, action)) return kEarly;
        return std::exchange(state(rank, action).is_sent, true) && is_flushed_[action.stage]
                   ? kTwice
                   : nullptr;
      case ActionKind::kReceiveWeights: state(rank, action).is_refreshed = true; return nullptr;
      default: return nullptr;
    }
  }

  /// A copy that is neither stepped nor made equal to one that is.
  Fault missing_step() const {
    if (!has_steps_) return std::nullopt;
    for (std::uint32_t stage = 0; stage < schedule_.stages; ++stage)
      for (const std::uint32_t rank : copies_.holders(stage)) {
        const State& copy = states_[copies_.at(rank, stage)];
        if (copy.is_stepped ||
            (!copies_.is_reducer(copies_.at(rank, stage)) && copy.is_sent && copy.is_refreshed))
          continue;
        return ScheduleFault{rank, schedule_.ranks[rank].size(),
                             Action{ActionKind::kStep, stage, kNoMicroBatch},
                             "it is missing (only a copy that sends its gradients and receives "
                             "weights does without)"};
      }
    return std::nullopt;
  }

 private:
  struct State {
    std::size_t gradients_end = 0;  // Position of the last one in its action list, plus one.
    bool is_reduced = false;        // Since the last step that names a micro-batch.
    bool is_sent = false;
    bool is_stepped = false;
    bool is_refreshed = false;
  };

  State& state(std::uint32_t rank, const Action& action) {
    return states_[copies_.at(rank, action.stage)];
  }

  bool is_early(std::uint32_t rank, std::size_t position, const Action& action) {
    return is_flushed_[action.stage] && position < state(rank, action).gradients_end;
  }

  const char* apply_step(std::uint32_t rank, std::size_t position, const Action& action) {
    const std::uint32_t id = copies_.at(rank, action.stage);
    State& copy = states_[id];
    const bool is_last = action.micro_batch == kNoMicroBatch;
    if (is_last && position < copy.gradients_end) return kEarly;
    const std::uint64_t of_all = id * (std::uint64_t{schedule_.micro_batches} + 1) +
                                 (is_last ? schedule_.micro_batches : action.micro_batch);
    if (!steps_.insert(of_all).second) return kTwice;
    const std::size_t summed =
        copies_.reducers(action.stage).size() * std::size_t{schedule_.data_parallel};
    if (is_summed_ && summed > 1 && !copy.is_reduced)
      return "the gradients of all copies of its stage are not summed before";
    copy.is_stepped = true;
    if (!is_last) copy.is_reduced = false;
    return nullptr;
  }

  const Schedule& schedule_;
  const WeightCopies& copies_;
  std::vector<State> states_;     // By copy.
  std::vector<bool> is_flushed_;  // By stage: no step names a micro-batch.
  bool is_summed_;                // Else sums between copies are not written down.
  bool has_steps_ = false;
  std::unordered_set<std::uint64_t> steps_;  // By copy and micro-batch.
};

}  // namespace

Fault update_fault(const Schedule& schedule, const WeightCopies& copies) {
  UpdateWalk walk(schedule, copies);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i)
      if (const char* problem = walk.apply(rank, i, schedule.ranks[rank][i]))
        return ScheduleFault{rank, i, schedule.ranks[rank][i], problem};
  return walk.missing_step();
}

}  // namespace spillway::schedule
