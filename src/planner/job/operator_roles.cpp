#include "operator_roles.h"

#include <algorithm>
#include <optional>

#include "spillway/profile/autograd_links.h"

namespace spillway::planner {

using profile::OpIndex;
using profile::StepProfile;
using profile::StorageClass;
using profile::TapeUse;
using profile::TapeValue;

namespace {

/// The last operator of forward in imported graphs, which call all that follows so.
std::optional<OpIndex> named_forward_end(const StepProfile& profile) {
  for (OpIndex op = 1; op < profile.tape.ops.size(); ++op)
    if (profile.kinds[profile.kind_of_op[op]].name.ends_with(" backward")) return op - 1;
  return std::nullopt;
}

/// Forward reads each parameter that is trained: its last operator is none before the latest of
/// their first uses. 0 where nothing is used.
OpIndex latest_first_read(const StepProfile& profile) {
  std::vector<bool> is_known(profile.tape.values.size(), false);
  OpIndex latest = 0;
  for (OpIndex op = 0; op < profile.tape.ops.size(); ++op)
    for (const TapeUse& use : uses_of(profile.tape, op)) {
      const StorageClass kind = profile.class_of_value[use.value];
      if (kind == StorageClass::kOptimizerState || kind == StorageClass::kGradient) return latest;
      if (kind != StorageClass::kParameter || use.writes || is_known[use.value]) continue;
      is_known[use.value] = true;
      latest = op;
    }
  return latest;
}

/// Square roots of moments, and what is made of them.
bool is_left_by_update(const TapeValue& value, const std::vector<Role>& of_op) {
  return value.birth < of_op.size() && of_op[value.birth] == Role::kUpdate &&
         value.death != profile::kSurvives;
}

/// `of_op` has the roles of all operators before.
bool is_update(const StepProfile& profile, OpIndex op, OpIndex forward_end,
               const std::vector<Role>& of_op) {
  const auto uses = uses_of(profile.tape, op);
  return std::any_of(uses.begin(), uses.end(), [&](const TapeUse& use) {
    const StorageClass kind = profile.class_of_value[use.value];
    return kind == StorageClass::kOptimizerState ||
           (kind == StorageClass::kParameter && use.writes) ||
           (kind == StorageClass::kGradient && op <= forward_end) ||
           (op > forward_end && is_left_by_update(profile.tape.values[use.value], of_op));
  });
}

/// As autograd knew them. Of what it keeps no account of, the rest of a step decides.
OperatorRoles known_roles(const StepProfile& profile, OpIndex forward_end) {
  OperatorRoles roles;
  roles.stash = find_stash(profile.tape, forward_end);
  for (OpIndex op = 0; op < profile.tape.ops.size(); ++op) {
    const OpPhase phase = profile.phase_of_op[op];
    const bool is_accounted = phase == OpPhase::kForward || phase == OpPhase::kBackward;
    const bool is_rest =
        !is_accounted && (op > forward_end || is_update(profile, op, forward_end, roles.of_op));
    // Data that is made ready before comes with forward.
    roles.of_op.push_back(is_rest             ? Role::kUpdate
                          : op <= forward_end ? Role::kForward
                                              : Role::kBackward);
  }
  return roles;
}

}  // namespace

OperatorRoles operator_roles(const StepProfile& profile) {
  if (const auto end = profile::forward_end_of(profile.phase_of_op))
    return known_roles(profile, *end);
  const std::optional<OpIndex> named = named_forward_end(profile);
  OperatorRoles roles;
  roles.is_guessed = !named;
  roles.stash = named ? find_stash(profile.tape, *named) : find_stash(profile.tape);
  const OpIndex read = latest_first_read(profile);
  if (!named && read > roles.stash.forward_end) roles.stash = find_stash(profile.tape, read);
  const OpIndex forward_end = roles.stash.forward_end;
  for (OpIndex op = 0; op < profile.tape.ops.size(); ++op)
    roles.of_op.push_back(is_update(profile, op, forward_end, roles.of_op) ? Role::kUpdate
                          : op <= forward_end                              ? Role::kForward
                                                                           : Role::kBackward);
  return roles;
}

}  // namespace spillway::planner
