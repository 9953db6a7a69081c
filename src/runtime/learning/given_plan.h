#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/planner/step_plan.h"
#include "spillway/profile/op_sequence.h"
#include "spillway/runtime/learning/planning_options.h"
#include "spillway/runtime/recording/op_names.h"

namespace spillway::runtime {

/// Whether steps have values of the same size and life, one by one.
bool has_same_lifetimes(const std::vector<profile::TapeValue>& a,
                        const std::vector<profile::TapeValue>& b);

/// The plan that the user gave the run: is laid on the step that it is for, and tells why when no
/// step was that one. The first steps of a program are odd (caches, optimizer states that are made
/// lazily), so it takes a few before that is said.
class GivenPlan {
 public:
  /// `names`: of the run's operators; outlives this.
  GivenPlan(const PlanningOptions& options, const OpNames& names)
      : options_(options), names_(names) {}

  bool is_there() const { return options_.stored != nullptr; }
  /// Whether these are the operators that it is for.
  bool is_for(const profile::OpSequence& step) const;

  /// What it may take of these limits: a little more room than there is where it was made for that,
  /// since small blocks, which share the budget, come and go.
  planner::SwapLimits limits_in(const planner::SwapLimits& limits) const;

  /// False where the plan was laid on such a step in vain, with as much room: trying costs a run of
  /// the event model, and the thread that trains waits for it. `knows_before`: the step before it
  /// was of its kind, and so tells what its values become that live on into the next one, as the
  /// batch and the loss of a loop in Python do.
  bool may_fit(const profile::StepTape& step, bool knows_before,
               const planner::SwapLimits& limits) const;
  void note_misfit(const profile::StepTape& step, bool knows_before,
                   const planner::SwapLimits& limits);

  /// The plan on a step of its operators, evaluated with `limits_in(limits)`; none where it is for
  /// other tensors or cannot be carried out.
  std::optional<planner::StepPlan> on(const profile::StepTape& tape,
                                      const planner::SwapLimits& limits);

  /// A whole step has ended; `usual` is the most frequent one so far. Warns, once, when a handful
  /// was not enough to see the plan's.
  void note_step(const profile::OpSequence& usual);

  /// Why it was laid on no step so far; empty when it was, or when there was no step.
  std::string misfit() const { return fits_ ? std::string() : misfit_; }

 private:
  const PlanningOptions options_;
  const OpNames& names_;
  bool fits_ = false;       ///< It was laid on a step.
  bool was_tried_ = false;  ///< `misfit_` tells of a step with its operators.
  bool is_told_ = false;
  std::uint64_t steps_ = 0;  ///< Whole ones.
  std::string misfit_;
  std::vector<profile::TapeValue>
      misfit_values_;  ///< Of the step that it was last tried on in vain.
  bool misfit_knew_before_ = false;
  std::uint32_t misfit_pages_ = 0;  ///< The room then.
};

}  // namespace spillway::runtime
