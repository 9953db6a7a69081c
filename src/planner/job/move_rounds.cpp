#include "move_rounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "spillway/schedule/weight_copies.h"

namespace spillway::planner {
namespace {

class MoveRounds {
 public:
  MoveRounds(const JobRequest& request, const SegmentCosts& costs, const Schedule& actions)
      : request_(request),
        costs_(costs),
        copies_(actions),
        is_resident_(resident_at_start(actions, copies_)),
        ranks_(actions.rank_count()),
        placements_(actions.placement.begin(), actions.placement.end()) {}

  std::optional<RebalanceChoice> run(Cuts here, const Cuts& target) {
    while (here != target) {
      Cuts next = after_round(here, target);
      // No border can move, and none will: room only comes from moves.
      if (next == here) return std::nullopt;
      here = std::move(next);
      ++choice_.rounds;
    }
    return std::move(choice_);
  }

 private:
  /// A border and where it goes in one round.
  struct Shift {
    std::uint32_t border = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;

    bool goes_right() const { return to < from; }  // The layers do.
    std::uint32_t first() const { return std::min(from, to); }
    std::uint32_t end() const { return std::max(from, to); }
    std::uint32_t sender() const { return goes_right() ? border - 1 : border; }
    std::uint32_t receiver() const { return goes_right() ? border : border - 1; }
  };

  double states(std::uint32_t first, std::uint32_t end) const {
    const double trained = costs_.trained_bytes(first, end);
    const double all = costs_.static_bytes(first, end) - costs_.held_parameter_bytes(first, end) -
                       costs_.buffer_bytes(first, end);
    return std::max(0.0, all - trained);  // Gradients are there in every copy.
  }

  /// What a copy of units has on its device between two steps.
  double held_bytes(std::uint32_t copy, std::uint32_t first, std::uint32_t end) const {
    if (first == end) return 0.0;
    double bytes = costs_.static_bytes(first, end);
    // Parked weights are on the host between two steps.
    if (!is_resident_[copy]) bytes -= costs_.trained_bytes(first, end);
    // A borrowed copy is not stepped, and has no states.
    if (!copies_.is_reducer(copy)) bytes -= states(first, end);
    return bytes;
  }

  std::vector<double> free_bytes(const Cuts& cuts) const {
    if (request_.device_memory == kNoLimit)
      return std::vector<double>(ranks_, std::numeric_limits<double>::infinity());
    std::vector<double> free(ranks_,
                             count_of(request_.device_memory) - count_of(request_.reserved));
    for (std::uint32_t copy = 0; copy < copies_.size(); ++copy) {
      const std::uint32_t stage = copies_[copy].stage;
      free[copies_[copy].rank] -= held_bytes(copy, cuts[stage], cuts[stage + 1]);
    }
    return free;
  }

  bool has_states(std::uint32_t rank, std::uint32_t stage) const {
    return copies_.is_reducer(copies_.at(rank, stage));
  }

  /// Whether a rank that gets layers of `from` has all of them already, in a copy of its own.
  bool has_both(std::uint32_t rank, std::uint32_t from, std::uint32_t to) const {
    const std::vector<std::uint32_t>& holders = copies_.holders(from);
    return std::find(holders.begin(), holders.end(), rank) != holders.end() &&
           (has_states(rank, from) || !has_states(rank, to));
  }

  /// One for each copy of the receiving stage. None brings states that neither end has.
  std::vector<RankMove> messages(const Shift& shift) const {
    const double all = costs_.static_bytes(shift.first(), shift.end());
    const double without_states = all - states(shift.first(), shift.end());
    std::vector<RankMove> messages;
    std::set<std::uint32_t> receivers;
    for (const std::vector<std::uint32_t>& rank_of : placements_) {
      RankMove move;
      move.round = choice_.rounds;
      move.first_layer = costs_.first_layer(shift.first());
      move.last_layer = costs_.first_layer(shift.end()) - 1;
      move.from_stage = shift.sender();
      move.to_stage = shift.receiver();
      move.to_rank = rank_of[move.to_stage];
      // Pipelines in both directions may have the stage on the same rank: one message does.
      if (!receivers.insert(move.to_rank).second) continue;
      const bool is_free = has_both(move.to_rank, move.from_stage, move.to_stage);
      move.from_rank = is_free ? move.to_rank : rank_of[move.from_stage];
      if (!is_free) {
        const bool brings_states =
            has_states(move.from_rank, move.from_stage) || has_states(move.to_rank, move.to_stage);
        move.bytes =
            Bytes(static_cast<std::uint64_t>(std::llround(brings_states ? all : without_states)));
      }
      if (move.bytes > Bytes(0)) move.seconds = request_.link.latency_seconds + busy_seconds(move);
      messages.push_back(move);
    }
    return messages;
  }

  double busy_seconds(const RankMove& move) const {
    return request_.link.rate.seconds_for(move.bytes);
  }

  static bool has_room(const std::vector<RankMove>& messages, const std::vector<double>& free) {
    return std::all_of(messages.begin(), messages.end(), [&](const RankMove& each) {
      return each.bytes == Bytes(0) || count_of(each.bytes) <= free[each.to_rank];
    });
  }

  Cuts after_round(const Cuts& here, const Cuts& target) {
    Cuts next = here;
    std::vector<double> free = free_bytes(here);
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> busy;
    double slowest = 0.0;
    for (std::uint32_t k = 1; k + 1 < here.size(); ++k) {
      // Only what a neighbour has now can come from it; the rest follows in later rounds.
      Shift shift{k, here[k], std::clamp(target[k], here[k - 1], here[k + 1])};
      for (; shift.to != here[k]; shift.to += shift.goes_right() ? 1 : -1) {
        const std::vector<RankMove> moves = messages(shift);
        // A shorter move may still fit.
        if (!has_room(moves, free)) continue;
        for (const RankMove& move : moves) {
          free[move.to_rank] -= count_of(move.bytes);
          choice_.bytes += move.bytes;
          choice_.moves.push_back(move);
          if (move.bytes == Bytes(0)) continue;
          double& link = busy[{move.from_rank, move.to_rank}] += busy_seconds(move);
          // Pairs of ranks move side by side, messages of one pair one after the other.
          slowest = std::max(slowest, request_.link.latency_seconds + link);
        }
        next[k] = shift.to;
        break;
      }
    }
    choice_.move_seconds += slowest;
    return next;
  }

  const JobRequest& request_;
  const SegmentCosts& costs_;
  const WeightCopies copies_;
  const std::vector<bool> is_resident_;
  const std::size_t ranks_;
  const std::set<std::vector<std::uint32_t>> placements_;
  RebalanceChoice choice_;
};

}  // namespace

std::optional<RebalanceChoice> move_rounds(const JobRequest& request, const SegmentCosts& costs,
                                           const Schedule& actions, const Cuts& now,
                                           const Cuts& target) {
  return MoveRounds(request, costs, actions).run(now, target);
}

}  // namespace spillway::planner
