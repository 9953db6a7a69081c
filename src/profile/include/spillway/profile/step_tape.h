#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "spillway/base/clock.h"

namespace spillway::profile {

/// Position of an operator in its tape.
using OpIndex = std::uint32_t;
/// Position of a value in its tape.
using ValueIndex = std::uint32_t;

inline constexpr OpIndex kCarriedIn = static_cast<OpIndex>(-1);  ///< Birth: before the step.
inline constexpr OpIndex kSurvives = static_cast<OpIndex>(-1);   ///< Death: after the step.
inline constexpr ValueIndex kNoValue = static_cast<ValueIndex>(-1);

/// One use of a value as the input of an operator.
struct TapeUse {
  ValueIndex value = kNoValue;
  bool writes = false;

  bool operator==(const TapeUse&) const = default;
};

/// One operator that uses or allocates paged storages.
struct TapeOp {
  std::uint64_t signature = 0;  ///< Names the operator, its shapes and how it uses its inputs.
  Duration time{0};             ///< From its begin to that of the next one, without I/O waits.
  std::uint32_t first_use = 0;  ///< Into `StepTape::uses`.
  std::uint32_t use_count = 0;
  std::uint32_t inside_peak_pages = 0;  ///< Most pages allocated inside at one time, outputs too.
  /// It may run again: equal inputs give equal outputs, and nothing else changes.
  bool is_replayable = false;
  std::uint32_t shared_count = 0;  ///< Uses of shared pages, behind the `use_count` others.

  bool operator==(const TapeOp&) const = default;
};

/// One storage during one step, from its birth to its death. In-place writes do not end it.
struct TapeValue {
  std::uint32_t pages = 0;
  OpIndex birth = kCarriedIn;  ///< The operator inside or after which it was allocated.
  OpIndex death = kSurvives;   ///< The operator inside or after which it was freed.
  /// For a survivor: the carried-in value that it is in the next equal step; often itself.
  ValueIndex becomes = kNoValue;
  /// It is a page that small storages share. Several operators fill it, so none of them makes it
  /// again: it is swapped, but never dropped, and replays do without it. Which storages share one
  /// may differ from step to step; from one step to the next it is known by its age.
  bool is_shared = false;

  bool operator==(const TapeValue&) const = default;
};

/// What one step does to paged storages, in pages and operators; the seed of a profile. The step
/// repeats: the last operator is followed by the first, and survivors live on as `becomes`.
struct StepTape {
  std::vector<TapeOp> ops;
  std::vector<TapeUse> uses;      ///< Of all operators, in order.
  std::vector<TapeValue> values;  ///< Births of one operator stand in the order of allocation.
  /// The last operator of forward, as autograd knew it; unknown in imported and older profiles, and
  /// where several steps are joined.
  std::optional<OpIndex> forward_end = std::nullopt;
  /// What a second run takes beyond the first one, per page that it makes: frames move.
  Duration replay_extra_per_page{0};

  void clear() {
    ops.clear();
    uses.clear();
    values.clear();
    forward_end.reset();
  }
  bool operator==(const StepTape&) const = default;
};

/// The uses of storages with pages of their own by an operator, in order: what it works on.
inline std::span<const TapeUse> uses_of(const StepTape& tape, OpIndex op) {
  return {tape.uses.data() + tape.ops[op].first_use, tape.ops[op].use_count};
}
/// The same with those of shared pages behind them: all that must be in memory.
inline std::span<const TapeUse> touches_of(const StepTape& tape, OpIndex op) {
  const TapeOp& entry = tape.ops[op];
  return {tape.uses.data() + entry.first_use, std::size_t{entry.use_count} + entry.shared_count};
}

/// Throws PlanError with the first contradiction: a use outside of a lifetime, a death before a
/// birth, an index out of range, a survivor that becomes a value of another size.
void check(const StepTape& tape);

}  // namespace spillway::profile
