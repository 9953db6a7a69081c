#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "drop_space.h"
#include "search_limits.h"
#include "spillway/planner/recomputation.h"
#include "spillway/planner/step_plan.h"
#include "swap_search.h"

namespace spillway::planner {

/// A plan as the list of what runs again, whichever drops led to it, and the swaps beside it.
struct ReplayList {
  std::vector<Replay> replays;
  RewrittenTape steps;
  StyledSwaps swaps;

  const StepEstimate& estimate() const { return swaps.plan.estimate; }
};

/// Searches sets of drops. Each is evaluated by the event model, with the swaps that go with it.
/// Keeps references to what it is given.
class StepSearch {
 public:
  StepSearch(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort);

  StepPlan run();

 private:
  /// A set of drops and what comes of it.
  struct Attempt : ReplayList {
    std::vector<Fate> fates;
    bool is_pruned = false;  ///< Far too much runs again; nothing else is known of it.
  };
  /// A set of drops to go on from, and how it was found.
  struct Start {
    Attempt attempt;
    DropPressure pressure;
  };

  Attempt rewritten(std::vector<Fate> fates) const;
  Attempt attempt(std::vector<Fate> fates, const SwapStyle& style);
  Attempt best_attempt(std::vector<Fate> fates, std::size_t refinement_ops);
  /// What is at least by so much better than the best.
  bool offer(const Attempt& attempt, double worthwhile = kWorthwhileDrops);
  void offer_swaps_alone();
  void offer_known();
  void offer_published();
  void offer_published(StepPlan plan);
  void hand_out(StepPlan plan);
  StepPlan plan_of(const ReplayList& list) const;
  void find_evictions();
  void restyle(ReplayList& list);
  void prune_list(ReplayList list);
  void prune_lists();
  void prune_best();
  StepPlan finished() const;
  bool is_stopped();
  bool is_over();
  bool is_good_enough() const;
  const StepEstimate& best_estimate() const;
  void spend(std::size_t ops) { ops_left_ -= std::min(ops_left_, ops); }
  double effort_left() const;

  void sweep();
  void drop_by_prices(DropPressure pressure);
  void keep_start(const Attempt& attempt, DropPressure pressure);
  void choose_start();

  void climb();
  void begin_elsewhere(std::size_t count);
  void disturb();
  void toggle(std::size_t drop);
  void repair_without(std::size_t drop);
  void add_and_prune(std::size_t drop);
  void recreate_window();
  void set_window();
  void extend(Attempt from, int rounds, std::size_t spared);
  void prune(Attempt from, double share);
  DropPressure other_pressure();
  std::size_t below(std::size_t limit) { return random_() % limit; }
  std::size_t random_dropped();

  const StepTape& tape_;
  const SwapLimits& limits_;
  const PlanEffort& effort_;
  const double compute_seconds_;  ///< Of the operators, once each.
  const DropSpace space_;
  const std::size_t all_ops_;  ///< Operators that may be simulated.
  std::size_t ops_left_;
  bool was_stopped_ = false;      ///< Nobody is asked again then.
  bool has_swaps_alone_ = false;  ///< They were refined and offered.
  std::optional<Attempt> best_;
  std::optional<StepPlan> published_;  ///< Of another strategy, where it is better than the best.
  std::vector<Start> starts_;          ///< The best few, best first.
  std::vector<ReplayList> lists_;      ///< Of on-line evictions, best first.
  std::vector<Replay> pruned_;         ///< Of the latest best plan that was pruned.
  Attempt current_;                    ///< From which the local search goes on.
  DropPressure pressure_;              ///< That led to it.
  double slack_ = 0.0;                 ///< So much slower than the best it may be.
  std::minstd_rand random_;            ///< Always begins alike.
};

}  // namespace spillway::planner
