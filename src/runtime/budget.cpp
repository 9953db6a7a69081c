#include "spillway/runtime/budget.h"

#include <algorithm>

#include "spillway/base/error.h"

namespace spillway::runtime {
namespace {

// A page in and a page out: nothing can be paged with less.
constexpr Bytes kLeastBudget = 4_MiB;

constexpr Bytes kLeastReserve = 512_MiB;

std::string text_of(double percent) {
  std::string text = message("{}", percent);
  return text + " %";
}

// "auto" and percentages: what the machine can give, less the reserve.
ResolvedBudget budget_of_machine(const Settings& settings, const topology::Machine& machine) {
  const auto usable = topology::usable_memory(machine.memory);
  if (!usable)
    throw ConfigError("cannot tell how much memory this process may use: neither /proc/meminfo nor "
                      "a cgroup limit is readable (give a size, for example --budget 4GiB)");
  const Bytes reserve = settings.reserve.value_or(default_reserve(usable->bytes));
  if (usable->bytes < reserve + kLeastBudget)
    throw ConfigError("no budget is left: {} usable ({}) less a reserve of {} (free some memory, "
                      "lower --reserve, or give a size with --budget)",
                      usable->bytes, usable->limited_by, reserve);
  const Bytes available = usable->bytes - reserve;
  ResolvedBudget result;
  if (settings.budget.kind == BudgetRequest::Kind::kAuto) {
    result.budget = available;
    result.origin =
        message("auto: {} usable ({}) less {} reserve", usable->bytes, usable->limited_by, reserve);
  } else {
    const double share = settings.budget.percent / 100.0;
    result.budget =
        Bytes(static_cast<std::uint64_t>(static_cast<double>(available.count()) * share));
    result.origin =
        message("{} of {} usable ({}) less {} reserve", text_of(settings.budget.percent),
                usable->bytes, usable->limited_by, reserve);
  }
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

}  // namespace

Bytes default_reserve(Bytes usable) {
  // Measured: 330 to 410 MB for the process itself with its libraries, and a few percent of scratch
  // memory that convolution kernels take behind the allocator's back.
  return std::max(kLeastReserve, usable * 8 / 100);
}

ResolvedBudget resolve_budget(const Settings& settings, const topology::Machine& machine) {
  ResolvedBudget result;
  if (settings.budget.kind == BudgetRequest::Kind::kSize) {
    result.budget = settings.budget.size;
    result.origin = "given";
  } else {
    result = budget_of_machine(settings, machine);
  }
  if (result.budget < kLeastBudget)
    throw ConfigError("a budget of {} is too small: tensors move in pages of 2 MiB, so {} is the "
                      "least, and a trainer needs what its largest operator holds",
                      result.budget, kLeastBudget);
  warn_of_machine(result, machine);
  return result;
}

}  // namespace spillway::runtime
