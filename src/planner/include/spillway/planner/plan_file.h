#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/planner/step_bound.h"
#include "spillway/planner/step_plan.h"
#include "spillway/planner/swap_plan.h"
#include "spillway/profile/step_profile.h"

namespace spillway::planner {

/// Identity of the step that a plan is for, without times: the same program on another machine has
/// the same identity.
struct StepIdentity {
  std::uint64_t operators = 0;  ///< How many.
  std::uint64_t values = 0;
  std::uint64_t operator_hash = 0;  ///< `profile::OpSequence::identity`.
  std::uint64_t value_hash = 0;     ///< Hash of sizes and lifetimes of the values, in order.

  bool operator==(const StepIdentity&) const = default;
};

StepIdentity identity_of(const profile::StepTape& tape);

/// Predictions of the time when the plan was made, with the rates of that time.
struct StoredFigures {
  double step_seconds = 0.0;
  double bound_seconds = 0.0;
  Bytes peak;  ///< With what never leaves.
};

/// A plan in a file, apart from the step it is for.
struct PlanFile {
  std::string strategy;
  StepIdentity step;
  std::string program;               ///< Program that the step is of; empty: not known.
  std::string device;                ///< Whose memory it plans: "cuda:0"; empty: the CPU's.
  std::vector<profile::OpKind> ops;  ///< Its operators, for messages; empty: not known.
  Bytes page_size;
  Bytes budget;  ///< As given; holds what never leaves (`small_bytes`) and the planned pages.
  Bytes small_bytes;
  profile::TransferRates rates;  ///< Rates that it was made for.
  std::optional<FarTier> far;    ///< And the second tier, if it was made for two.
  std::vector<Replay> replays;
  SwapChoices swaps;  ///< On the tape with the replays.
  StoredFigures figures;

  /// Limits that the plan was made for.
  SwapLimits limits() const;
};

/// The file for a plan of `tape`, and what it is held against.
PlanFile describe_plan(const StepPlan& plan, const StepBound& bound, const profile::StepTape& tape,
                       const SwapLimits& limits, Bytes budget, Bytes small_bytes);

/// The same with the names of its operators, which say in a run of another step how it differs.
PlanFile describe_plan(const StepPlan& plan, const StepBound& bound,
                       const profile::StepProfile& profile, const SwapLimits& limits, Bytes budget);

/// As JSON. plan_format.md tells the format.
std::string to_text(const PlanFile& file);

/// Reads what `to_text` wrote. Throws ConfigError that begins with `name` (the file) for text that
/// is no plan, truncated, changed, of a newer format, or with senseless limits.
PlanFile parse_plan_file(std::string_view text, const std::string& name);

/// How an operator of a tape is called. Empty: unknown.
using OpKindOf = std::function<profile::OpKind(profile::OpIndex)>;

/// "net.plan.json: the plan is for another program or other shapes: …", about a step of so many
/// other operators: names the first one that differs.
std::string text_of_other_step(const PlanFile& file, const std::string& name, std::uint64_t ops,
                               const OpKindOf& kind_of);

/// The plan on the tape it is for, evaluated anew with `limits` (`file.limits()`, or other rates).
/// Throws PlanError that begins with `name` for a tape of another program, other shapes or another
/// page size, and for a plan that cannot be carried out on it.
StepPlan fit_plan(const PlanFile& file, const std::string& name, const profile::StepTape& tape,
                  Bytes page_size, const SwapLimits& limits, const OpKindOf& kind_of = {});

}  // namespace spillway::planner
