#pragma once

#include <optional>
#include <vector>

#include "spillway/profile/step_tape.h"

namespace spillway::planner {

/// Cost of recomputing what a forward operator made, as forward left it.
class RecomputeClosure {
 public:
  /// `is_kept`: by value, whether it waits for backward anyway. Keeps references.
  RecomputeClosure(const profile::StepTape& tape, const std::vector<char>& is_kept,
                   profile::OpIndex forward_end);

  /// The time of the operator, of those that write what it made and is kept in place, and of all
  /// that these read and nobody keeps as they read it. Nothing where one of them may not run again
  /// or writes what was there before the step, an input is gone, or more than 64 operators would
  /// run.
  std::optional<double> seconds_of(profile::OpIndex op) const;

 private:
  /// Whether a value is there as `reader` read it, while `op` runs again.
  bool is_there(const profile::TapeUse& use, profile::OpIndex reader, profile::OpIndex op) const;

  const profile::StepTape& tape_;
  const std::vector<char>& is_kept_;
  profile::OpIndex forward_end_;
  /// By value: forward operators that write it in place, in order.
  std::vector<std::vector<profile::OpIndex>> writers_;
  std::vector<std::vector<profile::ValueIndex>> kept_of_;  ///< By the operator that makes it.
};

}  // namespace spillway::planner
