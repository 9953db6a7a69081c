#include "spillway/runtime/settings/budget.h"

#include <algorithm>
#include <optional>

#include "spillway/base/error.h"

namespace spillway::runtime {
namespace {

// A page in and a page out: nothing can be paged with less.
constexpr Bytes kLeastBudget = 4_MiB;

constexpr Bytes kLeastReserve = 512_MiB;

// Address space that the rest of the process needs beside tensors: stacks of threads, heaps.
constexpr Bytes kAddressesOfOthers = 512_MiB;

// Guards around what is reserved, and its alignment.
constexpr Bytes kAddressesOfGuards = 16_MiB;

// "auto" and percentages: what the machine can give, less the reserve.
ResolvedBudget budget_of_machine(const Settings& settings, const topology::Machine& machine,
                                 unsigned sharers) {
  const auto usable = topology::usable_memory(machine.memory);
  if (!usable)
    throw ConfigError("cannot tell how much memory this process may use: neither /proc/meminfo nor "
                      "a cgroup limit is readable (give the budget as a size, for example 4GiB)");
  const Bytes share = usable->bytes / sharers;
  const std::string history =
      message("{} usable ({}){}", usable->bytes, usable->limited_by,
              sharers > 1 ? message(" for {} ranks", sharers) : std::string());
  const Bytes reserve = settings.reserve.value_or(default_reserve(share));
  if (share < reserve + kLeastBudget)
    throw ConfigError("no budget is left: {} less a reserve of {} (free some memory, lower the "
                      "reserve, or give the budget as a size)",
                      history, reserve);
  const bool is_auto = settings.budget.kind == BudgetRequest::Kind::kAuto;
  const double percent = is_auto ? 100.0 : settings.budget.percent;
  ResolvedBudget result;
  result.budget = Bytes(static_cast<std::uint64_t>(static_cast<double>((share - reserve).count()) *
                                                   (percent / 100.0)));
  result.origin =
      message("{}: {}, less {} reserve{}", is_auto ? std::string("auto") : message("{} %", percent),
              history, reserve, sharers > 1 ? " each" : "");
  return result;
}

void warn_of_machine(ResolvedBudget& result, const topology::Machine& machine) {
  const auto usable = topology::usable_memory(machine.memory);
  if (machine.memory.total && result.budget > *machine.memory.total)
    result.warnings.push_back(
        message("the budget of {} is larger than the memory of this machine, {}: it limits nothing",
                result.budget, *machine.memory.total));
  else if (usable && result.budget > usable->bytes)
    result.warnings.push_back(message(
        "the budget of {} is larger than what this process can use now, {} ({}): the kernel "
        "may swap or kill it",
        result.budget, usable->bytes, usable->limited_by));
}

/// Of a limit of this process, what is not in use; nothing: there is no limit, or too little known.
std::optional<Bytes> room_under(const std::optional<std::uint64_t>& limit,
                                const std::optional<std::uint64_t>& used) {
  if (!limit || *limit == topology::kUnlimited || !used) return std::nullopt;
  return Bytes(*limit - std::min(*limit, *used));
}

/// Lowers a budget that was derived from the machine; one that was given is refused.
void hold_to_limit(ResolvedBudget& resolved, const Settings& settings, Bytes largest, Bytes lowered,
                   const std::string& limit) {
  if (resolved.budget <= largest) return;
  const bool is_given = settings.budget.kind == BudgetRequest::Kind::kSize;
  lowered = Bytes(lowered.count() / memory::kPageBytes * memory::kPageBytes);
  if (is_given || lowered < kLeastBudget)
    throw UnsupportedError(
        "a budget of {} does not fit: {}; lift the limit, or give a budget of at "
        "most {}MiB",
        resolved.budget, limit, largest / 1_MiB);
  resolved.warnings.push_back(
      message("the budget is lowered from {} to {}: {}", resolved.budget, lowered, limit));
  resolved.origin += ", lowered to what the limits of the process leave";
  resolved.budget = lowered;
}

}  // namespace

Bytes default_reserve(Bytes usable) {
  // What a process takes beside its tensors, libraries and what convolution kernels take behind the
  // allocator's back: benchmarks/how_slow_at_which_budget tells how much that is.
  return std::max(kLeastReserve, usable * 8 / 100);
}

ResolvedBudget resolve_budget(const Settings& settings, const topology::Machine& machine,
                              unsigned sharers) {
  ResolvedBudget result;
  if (settings.budget.kind == BudgetRequest::Kind::kSize) {
    result.budget = settings.budget.size;
    result.origin = "given";
  } else {
    result = budget_of_machine(settings, machine, sharers);
  }
  if (result.budget < kLeastBudget)
    throw ConfigError("a budget of {} is too small: tensors move in pages of 2 MiB, so {} is the "
                      "least, and a trainer needs what its largest operator holds",
                      result.budget, kLeastBudget);
  warn_of_machine(result, machine);
  return result;
}

void hold_to_mapper(ResolvedBudget& resolved, const Settings& settings,
                    const topology::Machine& machine, memory::MapperKind mapper) {
  if (!machine.kernel.mappings_max) return;
  const std::uint64_t mappings = *machine.kernel.mappings_max;
  const std::string reason = memory::reason_against_pool(mapper, resolved.budget, mappings);
  if (reason.empty()) return;
  const Bytes limit = memory::pool_limit(mapper, mappings).value();
  if (settings.budget.kind == BudgetRequest::Kind::kSize || limit < kLeastBudget)
    throw UnsupportedError("{}", reason);
  resolved.warnings.push_back(
      message("the budget is lowered from {} to {}: {}", resolved.budget, limit, reason));
  resolved.origin += message(", lowered to what the mapper {} can serve", memory::name_of(mapper));
  resolved.budget = limit;
}

void hold_to_limits(ResolvedBudget& resolved, const Settings& settings,
                    const topology::Machine& machine) {
  const topology::ProcessLimits& limits = machine.limits;
  if (const auto room = room_under(limits.data_bytes, machine.use.data_bytes)) {
    // What is on disk takes addresses, too, and these count where they can be written to.
    const std::string text = message("the limit of writable memory RLIMIT_DATA (ulimit -d) is {}, "
                                     "of which {} are left",
                                     Bytes(*limits.data_bytes), *room);
    hold_to_limit(resolved, settings, *room / 2, *room / 4, text);
  }
  const auto room = room_under(limits.address_space_bytes, machine.use.address_space_bytes);
  if (!room) return;
  const std::string text =
      message("the address-space limit RLIMIT_AS (ulimit -v) is {}, of which {} "
              "are left",
              Bytes(*limits.address_space_bytes), *room);
  const Bytes others = kAddressesOfOthers + kAddressesOfGuards;
  const Bytes usable = *room - std::min(*room, others);
  // The budget takes addresses twice: for the pool of frames, and for the tensors themselves.
  hold_to_limit(resolved, settings, usable / 2, usable / 4, text);
  const Bytes half = usable / 2;
  const Bytes most = std::max(half - std::min(half, resolved.budget), resolved.budget);
  const Bytes arena = Bytes(most.count() / memory::kPageBytes * memory::kPageBytes);
  if (arena >= resolved.arena) return;
  resolved.warnings.push_back(message("{} of addresses are reserved for tensors instead of {}: {}",
                                      arena, resolved.arena, text));
  resolved.arena_reason = "; " + text;
  resolved.arena = arena;
}

}  // namespace spillway::runtime
