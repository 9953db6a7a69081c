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
  result.is_auto = is_auto;
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
                    "use, {} ({}){}: name less",
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
  std::string lift;   ///< The command that ends it.
};

/// A limit of this process, and how much of it is in use.
struct Limit {
  const char* name;
  const char* option;  ///< Of `ulimit`.
  std::optional<std::uint64_t> bytes;
  std::optional<std::uint64_t> used;
};

/// Of a limit, what is not in use, less the memory before the disks; nothing: there is no limit, or
/// too little known.
std::optional<Room> room_under(const Limit& limit, Bytes host_tier) {
  if (!limit.bytes || *limit.bytes == topology::kUnlimited || !limit.used) return std::nullopt;
  const Bytes left(*limit.bytes - std::min(*limit.bytes, *limit.used));
  const std::string of_tier =
      host_tier > Bytes() ? message(", {} of these for memory before the disks", host_tier) : "";
  return Room{left - std::min(left, host_tier),
              message("{} (ulimit {}) is {}, of which {} are left{}", limit.name, limit.option,
                      Bytes(*limit.bytes), left, of_tier),
              message("`ulimit {} unlimited`", limit.option)};
}

/// Lowers a budget that was derived from the machine and is larger than `lowered`; one that was
/// given is refused where it is larger than `largest`.
void hold_to_limit(ResolvedBudget& resolved, const Settings& settings, Bytes largest, Bytes lowered,
                   const Room& room) {
  lowered = Bytes(lowered.count() / memory::kPageBytes * memory::kPageBytes);
  const bool is_lowered =
      settings.budget.kind != BudgetRequest::Kind::kSize && lowered >= kLeastBudget;
  if (resolved.budget <= (is_lowered ? lowered : largest)) return;
  if (!is_lowered) {
    const std::string other =
        largest < kLeastBudget
            ? ""
            : message(", or give a budget of at most {}MiB, in which all tensors have to find room "
                      "then, in memory and on disk together",
                      largest / 1_MiB);
    throw UnsupportedError("a budget of {} does not fit: {}; lift the limit with {}{}",
                           resolved.budget, room.limit, room.lift, other);
  }
  resolved.warnings.push_back(message("the budget is lowered from {} to {}: {} (lift it with {})",
                                      resolved.budget, lowered, room.limit, room.lift));
  resolved.origin += ", lowered to what the limits of the process leave";
  resolved.budget = lowered;
}

/// The budget that leaves much more of `half` of the addresses to tensors than `arena`. Nothing:
/// the least one would not.
std::string advice_on_addresses(Bytes half, Bytes arena) {
  constexpr std::uint64_t kMuch = 8;  // At least one part of so many.
  const Bytes most = half - std::min(half, kLeastBudget);
  if (most < arena + std::max(arena / kMuch, kLeastBudget)) return {};
  // Less than what just leaves as many.
  const Bytes budget = half - arena - Bytes(memory::kPageBytes);
  return message("a budget of at most {}MiB leaves more addresses, up to {}", budget / 1_MiB, most);
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

void hold_to_writable_limit(ResolvedBudget& resolved, const Settings& settings,
                            const topology::Machine& machine) {
  // What is on disk takes addresses, too, and these count where they can be written to: three times
  // a budget that was derived.
  if (const auto room = room_under({"the limit of writable memory RLIMIT_DATA", "-d",
                                    machine.limits.data_bytes, machine.use.data_bytes},
                                   settings.host_tier))
    hold_to_limit(resolved, settings, room->bytes / 2, room->bytes / 4, *room);
}

void hold_to_address_limit(ResolvedBudget& resolved, const Settings& settings,
                           const topology::Machine& machine) {
  const auto room =
      room_under({"the address-space limit RLIMIT_AS", "-v", machine.limits.address_space_bytes,
                  machine.use.address_space_bytes},
                 settings.host_tier);
  if (!room) return;
  const Bytes others = kAddressesOfOthers + kAddressesOfGuards;
  const Bytes usable = room->bytes - std::min(room->bytes, others);
  // The budget takes addresses twice: for the pool of frames, and for the tensors themselves. One
  // that was derived leaves these three times its size, most of it for tensors on disk.
  hold_to_limit(resolved, settings, usable / 2, usable / 8, *room);
  const Bytes half = usable / 2;
  const Bytes most = std::max(half - std::min(half, resolved.budget), resolved.budget);
  const Bytes arena = Bytes(most.count() / memory::kPageBytes * memory::kPageBytes);
  if (arena >= resolved.arena) return;
  resolved.warnings.push_back(message(
      "{} of addresses are reserved for tensors instead of {}: {}; tensors can take no more "
      "than that in memory and on disk together (lift the limit with {})",
      arena, resolved.arena, room->limit, room->lift));
  resolved.arena_reason = message("; {}; lift it with {}", room->limit, room->lift);
  resolved.arena_advice = advice_on_addresses(half, arena);
  resolved.arena = arena;
}

void hold_to_limits(ResolvedBudget& resolved, const Settings& settings,
                    const topology::Machine& machine) {
  hold_to_writable_limit(resolved, settings, machine);
  hold_to_address_limit(resolved, settings, machine);
}

std::string ResolvedBudget::why_no_addresses() const {
  return arena_advice.empty() ? arena_reason : message("{}; {}", arena_reason, arena_advice);
}

}  // namespace spillway::runtime
