#include "spillway/runtime/settings/budget.h"

#include <algorithm>
#include <optional>

#include "spillway/base/error.h"
#include "spillway/memory/frame_mapper.h"

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
  const Bytes tier = settings.host_tier;
  const std::string of_tier =
      tier > Bytes() ? message(" and {} before the disks", tier) : std::string();
  if (share < reserve + tier + kLeastBudget)
    throw ConfigError("no budget is left: {} less a reserve of {}{} (free some memory, lower the "
                      "{}, or give the budget as a size)",
                      history, reserve, of_tier,
                      tier > Bytes() ? "ram: of --nvme or the reserve" : "reserve");
  const bool is_auto = settings.budget.kind == BudgetRequest::Kind::kAuto;
  const double percent = is_auto ? 100.0 : settings.budget.percent;
  ResolvedBudget result;
  result.budget = Bytes(static_cast<std::uint64_t>(
      static_cast<double>((share - reserve - tier).count()) * (percent / 100.0)));
  result.origin = message("{}: {}, less {} reserve{}{}",
                          is_auto ? std::string("auto") : message("{} %", percent), history,
                          reserve, of_tier, sharers > 1 ? " each" : "");
  return result;
}

/// Memory before the disks is real memory, taken beside the budget.
void check_host_tier(const Settings& settings, const topology::Machine& machine, unsigned sharers) {
  const auto usable = topology::usable_memory(machine.memory);
  if (!usable || settings.host_tier <= usable->bytes / sharers) return;
  throw ConfigError("{} of memory before the disks (ram: of --nvme) are more than this process can "
                    "use, {} ({}){}",
                    settings.host_tier, usable->bytes, usable->limited_by,
                    sharers > 1 ? message(" for {} ranks", sharers) : std::string());
}

void warn_of_machine(ResolvedBudget& result, const topology::Machine& machine, Bytes host_tier) {
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
  else if (usable && host_tier > Bytes() && result.budget + host_tier > usable->bytes)
    result.warnings.push_back(
        message("the budget of {} and the {} before the disks are more than what this process can "
                "use now, {} ({}): the kernel may swap or kill it",
                result.budget, host_tier, usable->bytes, usable->limited_by));
}

/// What a limit of this process leaves for tensors.
struct Room {
  Bytes bytes;
  std::string limit;  ///< In words.
};

/// Of a limit, what is not in use, less the memory before the disks; nothing: there is no limit, or
/// too little known.
std::optional<Room> room_under(const char* name, const std::optional<std::uint64_t>& limit,
                               const std::optional<std::uint64_t>& used, Bytes host_tier) {
  if (!limit || *limit == topology::kUnlimited || !used) return std::nullopt;
  const Bytes left(*limit - std::min(*limit, *used));
  const std::string of_tier =
      host_tier > Bytes() ? message(", {} of these for memory before the disks", host_tier) : "";
  return Room{left - std::min(left, host_tier),
              message("{} is {}, of which {} are left{}", name, Bytes(*limit), left, of_tier)};
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
  check_host_tier(settings, machine, sharers);
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
  warn_of_machine(result, machine, settings.host_tier);
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
  const Bytes tier = settings.host_tier;
  // What is on disk takes addresses, too, and these count where they can be written to.
  if (const auto room = room_under("the limit of writable memory RLIMIT_DATA (ulimit -d)",
                                   limits.data_bytes, machine.use.data_bytes, tier))
    hold_to_limit(resolved, settings, room->bytes / 2, room->bytes / 4, room->limit);
  const auto room = room_under("the address-space limit RLIMIT_AS (ulimit -v)",
                               limits.address_space_bytes, machine.use.address_space_bytes, tier);
  if (!room) return;
  const Bytes others = kAddressesOfOthers + kAddressesOfGuards;
  const Bytes usable = room->bytes - std::min(room->bytes, others);
  // The budget takes addresses twice: for the pool of frames, and for the tensors themselves.
  hold_to_limit(resolved, settings, usable / 2, usable / 4, room->limit);
  const Bytes half = usable / 2;
  const Bytes most = std::max(half - std::min(half, resolved.budget), resolved.budget);
  const Bytes arena = Bytes(most.count() / memory::kPageBytes * memory::kPageBytes);
  if (arena >= resolved.arena) return;
  resolved.warnings.push_back(message("{} of addresses are reserved for tensors instead of {}: {}",
                                      arena, resolved.arena, room->limit));
  resolved.arena_reason = "; " + room->limit;
  resolved.arena = arena;
}

}  // namespace spillway::runtime
