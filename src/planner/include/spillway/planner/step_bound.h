#pragma once

#include <cstddef>
#include <cstdint>

#include "spillway/planner/linear_program.h"
#include "spillway/profile/step_tape.h"

namespace spillway::planner {

struct SwapLimits;

/// Which argument gives the largest lower bound.
enum class BoundKind : std::uint8_t {
  kCompute,    ///< The operators themselves.
  kTransfers,  ///< Pages that every step moves, whenever it does.
  kWindow,     ///< Sums over windows of the step, each computing or moving.
  kFluid,      ///< The linear program over the whole step.
};

/// In words, for users.
const char* name_of(BoundKind kind);

/// A lower bound of the step time of all plans for this order of operators, on average over
/// repetitions that need not be equal, when operators hold what they need for their whole time and
/// take what the tape says. bounds.md has the proofs, which are our own; pages are those of
/// `SwapLimits::page_size`.
struct StepBound {
  double compute_seconds = 0.0;     ///< Seconds of the operators, once each.
  std::uint64_t written_pages = 0;  ///< Pages that every plan writes per step.
  std::uint64_t read_pages = 0;     ///< The same for reads.
  double step_seconds = 0.0;        ///< Per step; at least `compute_seconds`.

  BoundKind kind = BoundKind::kCompute;
  bool is_of_far_tier = false;  ///< The bound is of the far one of two tiers.
  /// The part of the step that costs most beyond its operators: from the begin of one operator to
  /// the begin of the other, around the end of the step where that is not behind it. The whole step
  /// when both are 0.
  profile::OpIndex from = 0;
  profile::OpIndex to = 0;
  /// Of the pages that have to come back there (by the linear program: in the step), the share that
  /// is recomputed where the bound is attained, and what that takes.
  double recomputed_share = 0.0;
  double recompute_seconds = 0.0;
};

struct BoundOptions {
  /// Solves the linear program, too: tighter, and takes seconds for long steps instead of
  /// milliseconds. Null: no linear program. Not owned.
  const LinearSolver* solver = nullptr;
  /// Variables of the program; bounds its size, and so its time.
  std::size_t most_columns = 20000;
  /// Of the solver; bounds the time of a program that is hard for its size. One that is cut short
  /// gives a lower bound that holds as well.
  std::size_t most_iterations = 20000;
  /// Operators for parents that the linear program charges to a stretch between two uses, the
  /// latest ones. With any number the bound holds. More charge more to what comes back behind long
  /// chains, and divide the time of each operator among more of it.
  std::size_t most_parents = 4;
};

/// The bound for plans that swap and recompute replayable operators; the larger one of the link and
/// of the far tier, where there are two. Takes time that grows about linearly with the step, unless
/// there is a solver. Deterministic; any number of threads may ask at the same time. The tape and
/// the limits must be sound (`profile::check` and `check`), which is not looked at. All is 0 for an
/// empty tape.
StepBound bound_plan(const profile::StepTape& tape, const SwapLimits& limits,
                     const BoundOptions& options = {});

}  // namespace spillway::planner
