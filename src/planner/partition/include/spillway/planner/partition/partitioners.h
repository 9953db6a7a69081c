#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "spillway/planner/partition/partition_estimate.h"

namespace spillway::partition {

/// How sure we are that a partitioner does what its source says.
enum class Reading : std::uint8_t {
  kOurs,         ///< No source but this project.
  kAsPublished,  ///< As the paper or the code says, on chains and without replication.
  kInferred,     ///< Our reading of an outline, not confirmed by its authors or code.
};

/// A way to cut a chain. All are evaluated by the same simulator, which chooses swaps and
/// recomputation for the cuts of each.
struct Partitioner {
  using Make = std::optional<Cuts> (*)(const SegmentCosts& costs);

  /// Its cuts; they may not fit. Nothing where it plans memory and finds none that fit.
  std::optional<Cuts> find(const SegmentCosts& costs) const;
  /// Why it finds none, for users: with the least memory of the fullest stage that any cuts reach
  /// when time does not matter, and what to do.
  std::string refusal(const SegmentCosts& costs) const;
  /// Its cuts; throws PlanError with the refusal where there are none.
  Cuts cut(const SegmentCosts& costs) const;

  std::string_view name;
  std::string_view summary;  ///< One line for users, at most 80 letters.
  std::string_view source;   ///< Paper or repository; empty for ours.
  Reading reading = Reading::kOurs;
  Make make;
  /// It looks at the chain and at what the first stage would hold of it, and at nothing else of the
  /// problem, so that its cuts are the same for others.
  bool sees_first_stage_alone = false;
  /// It draws cuts at random where they are many, which takes long.
  bool draws_cuts = false;
  /// What the stages do about their memory that it cuts for.
  MemoryReduction memory_reduction = MemoryReduction::kSwapAndRecompute;
};

/// All of them, ours first, the others by name.
std::span<const Partitioner> partitioners();

/// Throws ConfigError with the nearest name.
const Partitioner& partitioner_named(std::string_view name);

/// How a table or a file calls it: "ours", "as published", "inferred".
std::string_view to_string(Reading reading);

}  // namespace spillway::partition
