#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/forward_stash.h"
#include "spillway/profile/step_profile.h"

namespace spillway::planner {

enum class Role : std::uint8_t { kForward, kBackward, kUpdate };

/// Roles of the operators of a step.
struct OperatorRoles {
  ForwardStash stash;       ///< With the last operator of forward.
  std::vector<Role> of_op;  ///< By operator.
  bool is_guessed = false;  ///< Neither phases nor names of operators told where forward ends.

  bool is(profile::OpIndex op, Role role) const { return of_op[op] == role; }
};

/// As the profile tells by phases: forward ends before the first operator of backward, the update
/// is what autograd keeps no account of, behind that or by what it touches.
///
/// A guess for profiles without phases: imported graphs call their backward operators so; elsewhere
/// forward ends where most waits. The update is what touches states of the optimizer, writes
/// parameters, or works on what such operators leave.
OperatorRoles operator_roles(const profile::StepProfile& profile);

}  // namespace spillway::planner
