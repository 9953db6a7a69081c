#pragma once

#include "spillway/planner/job/refusal.h"

namespace spillway::planner {

/// The result of a call to a library that says by exceptions what it cannot do: makers of action
/// lists, partitioners, costs of segments. This is the one place where the search takes exceptions
/// for answers. Calls that must succeed, simulations above all, do not go through it, so that their
/// faults are not read as "does not fit".
template <typename Call>
auto refusing(const Call& call) -> OrRefusal<decltype(call())> {
  try {
    return call();
  } catch (const ConfigError& error) {
    return Refusal{.cause = Refusal::Cause::kRequest, .sentence = error.what()};
  } catch (const PlanError& error) {
    return Refusal{.sentence = error.what()};
  }
}

}  // namespace spillway::planner
