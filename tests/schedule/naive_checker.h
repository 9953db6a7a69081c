#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// Runs action lists with messages and flushes in the slowest and plainest way: each rank's next
/// action goes as soon as all it needs is done, messages when both ends stand at them, reductions
/// when all copies do. For comparison with the checker; knows no swaps, no recomputation.
class NaiveChecker {
 public:
  explicit NaiveChecker(const Schedule& schedule)
      : schedule_(schedule), done_(schedule.ranks.size()), next_(schedule.ranks.size(), 0) {}

  bool comes_to_an_end() {
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (std::uint32_t rank = 0; rank < schedule_.rank_count(); ++rank)
        while (moves(rank)) has_moved = true;
    }
    for (std::uint32_t rank = 0; rank < schedule_.rank_count(); ++rank)
      if (next_[rank] < schedule_.ranks[rank].size()) return false;
    return true;
  }

 private:
  bool is_done(std::uint32_t rank, ActionKind kind, const Action& of, std::uint32_t stage) const {
    return done_[rank].contains({kind, stage, of.micro_batch, of.replica});
  }
  bool has_backward(std::uint32_t rank, const Action& of, std::uint32_t stage) const {
    return is_done(rank, ActionKind::kBackward, of, stage) ||
           is_done(rank, ActionKind::kInputGradient, of, stage);
  }
  bool is_next(std::uint32_t rank, const Action& action) const {
    return next_[rank] < schedule_.ranks[rank].size() &&
           schedule_.ranks[rank][next_[rank]] == action;
  }
  void pass(std::uint32_t rank) { done_[rank].insert(schedule_.ranks[rank][next_[rank]++]); }

  bool has_input(std::uint32_t rank, const Action& action) const {
    if (action.stage == 0) return true;
    if (schedule_.rank_of(action.replica, action.stage - 1) == rank)
      return is_done(rank, ActionKind::kForward, action, action.stage - 1);
    return is_done(rank, ActionKind::kReceiveForward, action, action.stage);
  }
  bool has_gradient(std::uint32_t rank, const Action& action) const {
    if (!is_done(rank, ActionKind::kForward, action, action.stage)) return false;
    if (action.stage + 1 == schedule_.stages) return true;
    if (schedule_.rank_of(action.replica, action.stage + 1) == rank)
      return has_backward(rank, action, action.stage + 1);
    return is_done(rank, ActionKind::kReceiveBackward, action, action.stage);
  }
  bool has_all_gradients(std::uint32_t rank, std::uint32_t stage) const {
    std::uint32_t missing = 0;
    for (std::uint32_t replica = 0; replica < schedule_.replica_count(); ++replica)
      if (schedule_.rank_of(replica, stage) == rank) missing += schedule_.micro_batches;
    for (const Action& action : done_[rank])
      if (action.stage == stage &&
          (action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGradient))
        --missing;
    return missing == 0;
  }
  std::set<std::uint32_t> holders(std::uint32_t stage) const {
    std::set<std::uint32_t> ranks;
    for (const auto& placed : schedule_.placement) ranks.insert(placed[stage]);
    return ranks;
  }

  bool moves_with_peer(std::uint32_t rank, const Action& send) {
    const bool is_forward = send.kind == ActionKind::kSendForward;
    const bool is_made = is_forward ? is_done(rank, ActionKind::kForward, send, send.stage)
                                    : has_backward(rank, send, send.stage);
    Action receive = send;
    receive.kind = is_forward ? ActionKind::kReceiveForward : ActionKind::kReceiveBackward;
    receive.stage = is_forward ? send.stage + 1 : send.stage - 1;
    const std::uint32_t peer = schedule_.rank_of(send.replica, receive.stage);
    if (!is_made || !is_next(peer, receive)) return false;
    pass(peer);
    pass(rank);
    return true;
  }
  bool moves_with_all(const Action& reduction) {
    for (const std::uint32_t rank : holders(reduction.stage))
      if (!is_next(rank, reduction) || !has_all_gradients(rank, reduction.stage)) return false;
    for (const std::uint32_t rank : holders(reduction.stage)) pass(rank);
    return true;
  }

  bool moves(std::uint32_t rank) {
    if (next_[rank] == schedule_.ranks[rank].size()) return false;
    const Action& action = schedule_.ranks[rank][next_[rank]];
    bool can_go = false;
    switch (action.kind) {
      case ActionKind::kForward: can_go = has_input(rank, action); break;
      case ActionKind::kBackward:
      case ActionKind::kInputGradient: can_go = has_gradient(rank, action); break;
      case ActionKind::kWeightGradient:
        can_go = is_done(rank, ActionKind::kInputGradient, action, action.stage);
        break;
      case ActionKind::kSendForward:
      case ActionKind::kSendBackward: return moves_with_peer(rank, action);
      case ActionKind::kReduce: return moves_with_all(action);
      case ActionKind::kStep:
        can_go = has_all_gradients(rank, action.stage) &&
                 (holders(action.stage).size() == 1 ||
                  done_[rank].contains({ActionKind::kReduce, action.stage, kNoMicroBatch}));
        break;
      default: return false;  // A receive goes with its send.
    }
    if (can_go) pass(rank);
    return can_go;
  }

  const Schedule& schedule_;
  std::vector<std::set<Action>> done_;  // By rank.
  std::vector<std::size_t> next_;
};

}  // namespace spillway::schedule
