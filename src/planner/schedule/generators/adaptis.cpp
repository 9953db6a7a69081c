#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "action_list_building.h"
#include "awake_ranks.h"
#include "spillway/base/assert.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/schedule/boundary_stages.h"

namespace spillway::planner_schedule {
namespace {

struct OldestFirst {
  bool operator()(const Action& a, const Action& b) const {
    return std::tie(a.micro_batch, a.stage) < std::tie(b.micro_batch, b.stage);
  }
};

/// Gradients of late stages have the longest way to go, and ranks before wait for them.
struct DeepestFirst {
  bool operator()(const Action& a, const Action& b) const {
    return std::tie(b.stage, a.micro_batch) < std::tie(a.stage, b.micro_batch);
  }
};

/// All ranks side by side, in ticks of one action: each takes the best of what it can do.
class ListOrder {
 public:
  ListOrder(Schedule& schedule, std::uint32_t most_held)
      : schedule_(schedule),
        most_held_(most_held),
        ranks_(schedule.ranks.size()),
        held_(schedule.stages, 0),
        awake_(schedule.rank_count()) {
    for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
      // No stage has a stash yet, so each has one kept free.
      ++ranks_[schedule.rank_of(0, stage)].empty_stages;
    // All else follows: an action is ready when the one before it has run.
    add(ranks_[schedule.rank_of(0, 0)], forward(0, 0));
  }

  void run() {
    // Forward, input gradient and weight gradient of each micro-batch on each stage.
    std::uint64_t left = 3 * std::uint64_t{schedule_.stages} * schedule_.micro_batches;
    std::vector<std::pair<std::uint32_t, Action>> chosen;
    while (left > 0) {
      // All choose before anything runs, so that the order of ranks does not count.
      chosen.clear();
      for (const std::uint32_t rank : awake_.begin_tick())
        if (const auto action = choose(ranks_[rank])) chosen.emplace_back(rank, *action);
      SPILLWAY_ASSERT(!chosen.empty());
      for (const auto& [rank, action] : chosen) take(rank, action);
      left -= chosen.size();
    }
  }

 private:
  struct Rank {
    std::set<Action, OldestFirst> forwards;
    std::set<Action, DeepestFirst> backwards;
    std::set<Action, OldestFirst> weight_gradients;
    std::vector<Action> fresh;  // Their inputs were made elsewhere in the tick before.
    bool was_backward = false;
    std::uint32_t held = 0;          // Stashes of its stages.
    std::uint32_t empty_stages = 0;  // Stages without a stash that still have forwards to come.
  };

  static void add(Rank& rank, const Action& action) {
    if (action.kind == ActionKind::kForward)
      rank.forwards.insert(action);
    else if (action.kind == ActionKind::kInputGradient)
      rank.backwards.insert(action);
    else
      rank.weight_gradients.insert(action);
  }

  /// One stash is kept free for each empty stage. So the oldest micro-batch under way, which finds
  /// its next stage empty, gets there, and comes back: no limit makes the ranks wait in a circle.
  bool has_room(const Rank& rank, std::uint32_t stage) const {
    return held_[stage] == 0 || rank.held + rank.empty_stages < most_held_;
  }

  std::optional<Action> best(const Rank& rank) const {
    const bool has_backward = !rank.backwards.empty();
    const bool has_forward = !rank.forwards.empty() && has_room(rank, rank.forwards.begin()->stage);
    // In turn, as in 1F1B: backwards alone would run dry, forwards alone fill the memory.
    if (has_forward && (rank.was_backward || !has_backward)) return *rank.forwards.begin();
    if (has_backward) return *rank.backwards.begin();
    if (!rank.weight_gradients.empty()) return *rank.weight_gradients.begin();
    return std::nullopt;
  }

  /// What was made elsewhere a tick ago is still on its way where messages take time. Anything else
  /// goes first, weight gradients too, and hides the message.
  std::optional<Action> choose(Rank& rank) const {
    const std::optional<Action> action = best(rank);
    for (const Action& each : rank.fresh) add(rank, each);
    rank.fresh.clear();
    return action ? action : best(rank);
  }

  void take(std::uint32_t number, const Action& action) {
    Rank& rank = ranks_[number];
    schedule_.ranks[number].push_back(action);
    awake_.wake(number);
    const std::uint32_t stage = action.stage;
    const std::uint32_t i = action.micro_batch;
    const bool is_last = i + 1 == schedule_.micro_batches;
    rank.was_backward = action.kind == ActionKind::kInputGradient;
    if (action.kind == ActionKind::kForward) {
      rank.forwards.erase(action);
      ++rank.held;
      if (held_[stage]++ == 0) --rank.empty_stages;
      if (stage == 0 && !is_last) add(rank, forward(0, i + 1));
      if (stage + 1 == schedule_.stages) add(rank, input_gradient(stage, i));
    } else if (action.kind == ActionKind::kInputGradient) {
      rank.backwards.erase(action);
      add(rank, weight_gradient(stage, i));
    } else {
      rank.weight_gradients.erase(action);
      --rank.held;
      if (--held_[stage] == 0 && !is_last) ++rank.empty_stages;
    }
    if (const auto next = schedule::output_stage(schedule_, action))
      pass_on(number, Action{action.kind, *next, i});
  }

  void pass_on(std::uint32_t from, const Action& action) {
    const std::uint32_t to = schedule_.rank_of(0, action.stage);
    if (to == from) return add(ranks_[to], action);
    ranks_[to].fresh.push_back(action);
    awake_.wake(to);
  }

  Schedule& schedule_;
  std::uint32_t most_held_;
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> held_;  // Stashes of a stage, until their weight gradient.
  AwakeRanks awake_;
};

Schedule make_adaptis(const ScheduleRequest& request) {
  const std::uint32_t stages = request.ranks * request.stages_per_rank;
  Schedule schedule =
      one_replica(request.ranks, request.micro_batches, round_placement(request.ranks, stages));
  // What interleaved holds, and zb-h2 with one stage per rank. The source has a device's memory
  // here.
  ListOrder(schedule, stages + request.ranks - 1).run();
  end_with_steps(schedule);
  return schedule;
}

}  // namespace

extern const ScheduleGenerator kAdaptis{
    "adaptis",
    "interleaved with split backwards: a rank does what hides messages and fills waits",
    "Guo et al., AdaPtis, since its third version OctoPipe, SC 2026, arXiv 2509.23722; the order "
    "alone, for equal times, by the rule of repository guojihu-hana/SimPipe",
    make_adaptis,
    StagesPerRank::kAsRequested,
    {.copies = 1}};

}  // namespace spillway::planner_schedule
