#pragma once

#include <optional>
#include <vector>

#include "spillway/profile/step_tape.h"

namespace spillway::planner {

/// What computing the outputs of forward operators again takes.
class RecomputeClosure {
 public:
  /// `is_kept`: by value, whether it waits for backward anyway. Keeps references.
  RecomputeClosure(const profile::StepTape& tape, const std::vector<char>& is_kept,
                   profile::OpIndex turn);

  /// The time of the operator and of all before it whose outputs nobody keeps; nothing where one of
  /// them may not run again, something was written in place, an input is gone, or more than 64
  /// operators would run.
  std::optional<double> seconds_of(profile::OpIndex op) const;

 private:
  const profile::StepTape& tape_;
  const std::vector<char>& is_kept_;
  profile::OpIndex turn_;
  std::vector<char> is_written_;  ///< By value, in place, within forward.
};

}  // namespace spillway::planner
