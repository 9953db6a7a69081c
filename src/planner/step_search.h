#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "drop_space.h"
#include "spillway/planner/step_plan.h"
#include "swap_search.h"

namespace spillway::planner {

/// Searches drop sets, with the event model as the judge of each with its swaps. Keeps references
/// to what it is given.
class StepSearch {
 public:
  StepSearch(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort);

  StepPlan run();

 private:
  /// A set of drops with the swaps that go with it.
  struct Attempt {
    std::vector<Fate> fates;
    std::vector<Replay> replays;
    RewrittenTape steps;
    StyledSwaps swaps;
  };

  Attempt rewritten(std::vector<Fate> fates) const;
  Attempt attempt(std::vector<Fate> fates, const SwapStyle& style);
  Attempt best_attempt(std::vector<Fate> fates, std::size_t refinement_ops);
  bool offer(Attempt&& attempt);
  StepPlan finished(const Attempt& attempt) const;
  bool is_over() const;
  bool is_good_enough() const;
  void sweep();
  void sweep_with(DropPressure pressure);
  void keep_start(const Attempt& attempt, DropPressure pressure);
  void climb();
  void toggle(std::size_t index);
  void disturb();
  void exchange();
  void set_window();
  void recreate_window();
  std::size_t below(std::size_t limit);
  double seconds_of(const Attempt& attempt) const;

  struct Start {
    std::vector<Fate> fates;
    DropPressure pressure;
    StepEstimate estimate;
  };

  const StepTape& tape_;
  const SwapLimits& limits_;
  const PlanEffort& effort_;
  const StepBound bound_;
  DropSpace space_;
  std::size_t ops_left_;
  std::vector<Start> starts_;  ///< The best few, best first.
  Attempt current_;            ///< What the local search goes on from.
  DropPressure pressure_;      ///< That led to it.
  Attempt best_;
  std::minstd_rand random_;
 public: std::size_t evals_=0;
};

}  // namespace spillway::planner
