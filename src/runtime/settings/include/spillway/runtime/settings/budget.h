#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/topology/machine.h"

namespace spillway::runtime {

/// An operator that needs more than so many times the budget is refused.
inline constexpr std::uint64_t kReachOfOversize = 4;

/// What becomes of one that needs less, but more than the budget, as runs and plans tell it.
inline constexpr std::string_view kPagesThrough =
    "It is moved through memory piece by piece, which is slow";

/// A budget in bytes with its history.
struct ResolvedBudget {
  Bytes budget;
  std::string origin;    ///< "auto: 21.3 GiB available memory less 1.7 GiB reserve"
  bool is_auto = false;  ///< Nobody gave one: all that there is.
  std::vector<std::string> warnings;
  Bytes arena{
      std::uint64_t{1} << 40};  ///< Address space to reserve for tensors, wherever they are.
  std::string arena_reason;     ///< Why it is less, and what lifts that: ends a message.
  std::string arena_advice;     ///< What smaller budget leaves much more; empty: none does.

  /// Ends a message that the addresses are used up.
  std::string why_no_addresses() const;
};

/// Bytes that a budget derived from the machine leaves free: 512 MiB, or 8 % when that is
/// more.
Bytes default_reserve(Bytes usable);

/// Turns the request into bytes. What is derived from the machine is divided by `sharers`, the
/// processes of the same job on it. Throws ConfigError when nothing sensible remains, when the
/// machine does not tell its memory and the request depends on it, or when the size is below two
/// pages.
ResolvedBudget resolve_budget(const Settings& settings, const topology::Machine& machine,
                              unsigned sharers = launched_ranks_here());

/// Holds a budget to what `mapper` can serve on `machine` (memory::pool_limit): one that was
/// derived from the machine is lowered, with a warning; a size that was given and is larger throws
/// UnsupportedError with the largest that can be served.
void hold_to_mapper(ResolvedBudget& resolved, const Settings& settings,
                    const topology::Machine& machine, memory::MapperKind mapper);

/// Fits a budget that was derived from the machine into what the limit of writable memory of this
/// process leaves (RLIMIT_DATA), with a warning. A size that was given and cannot fit throws
/// UnsupportedError with the limit and the largest size that fits.
void hold_to_writable_limit(ResolvedBudget& resolved, const Settings& settings,
                            const topology::Machine& machine);

/// The same under the limit of addresses (RLIMIT_AS), into which the addresses to reserve are
/// fitted, too.
void hold_to_address_limit(ResolvedBudget& resolved, const Settings& settings,
                           const topology::Machine& machine);

/// Both.
void hold_to_limits(ResolvedBudget& resolved, const Settings& settings,
                    const topology::Machine& machine);

}  // namespace spillway::runtime
