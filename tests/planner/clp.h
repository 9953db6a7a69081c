#pragma once

#include <memory>

#include "spillway/base/error.h"
#include "spillway/planner/clp/clp_solver.h"

namespace spillway::planner {

/// The solver of a build that has one; null in others, where cases that need it are skipped.
inline const LinearSolver* clp() {
  static const std::unique_ptr<LinearSolver> solver = []() -> std::unique_ptr<LinearSolver> {
    try {
      return planner_clp::make_clp_solver();
    } catch (const UnsupportedError&) {
      return nullptr;
    }
  }();
  return solver.get();
}

inline constexpr const char* kNoClp = "this build has no COIN-OR's Clp";

}  // namespace spillway::planner
