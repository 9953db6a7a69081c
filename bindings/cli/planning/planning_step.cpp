#include "planning/planning_step.h"

#include <cmath>
#include <limits>
#include <new>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/value_classes.h"
#include "spillway/runtime/settings/budget.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

namespace {

std::string kind_text(const profile::OpKind& kind) {
  if (kind.arguments.empty()) return kind.name;
  return message("{} ({})", kind.name, shortened(kind.arguments, kMostBytesInLine));
}

/// By another operator than those of the step. What runs name has a page to spare.
bool is_set_outside(const PlanningStep& step) {
  const auto& needs = step.profile.program_needs;
  return needs && needs->budget > step.smallest_of_step + step.profile.page_size;
}

}  // namespace

PlanningStep load_step(const std::string& path) {
  try {
    const std::string text = topology::text_of_file(
        path, message("spillway profile --out {} -- PROGRAM", shell_word(path)));
    return to_step(profile::parse_profile(text, path), path);
  } catch (const std::bad_alloc&) {
    throw IoError("cannot read {}: memory ran out (give the command more)", path);
  }
}

PlanningStep to_step(profile::StepProfile profile, std::string path) {
  PlanningStep step;
  step.path = std::move(path);
  step.profile = std::move(profile);
  const profile::StepTape& tape = step.profile.tape;
  step.needed = in_memory(step, planner::live_peak(tape));
  step.smallest_of_step = in_memory(step, std::max(1U, planner::smallest_budget(tape)));
  step.smallest = step.smallest_of_step;
  if (const auto& needs = step.profile.program_needs)
    step.smallest = std::max(step.smallest, needs->budget);  // As a run names it.
  step.neediest = planner::neediest_operator(tape);
  for (const profile::TapeOp& op : tape.ops) step.incore_seconds += seconds(op.time);
  return step;
}

Bytes in_memory(const PlanningStep& step, std::uint64_t pages) {
  return pages * step.profile.page_size + step.profile.small_bytes;
}

ValueKind<StepBudget> budgets() {
  return {"SIZE|PERCENT%", [](const std::string& option, const std::string& text) {
            runtime::Settings settings;
            bool is_read = true;
            try {
              runtime::assign_setting(settings, "budget", text, option);
            } catch (const ConfigError&) {
              if (number_in(text)) throw;  // A size without a unit.
              is_read = false;
            }
            if (!is_read && text.ends_with('%') && text.find('=') == std::string::npos)
              throw ConfigError("{}: '{}' is no share above 0% and up to 100% of what the step "
                                "needs (100% is all of it)",
                                option, shown_text(text));
            const bool names_devices = !settings.device_budgets.empty();
            if (is_read && !names_devices && settings.budget.kind != StepBudget::Kind::kAuto)
              return settings.budget;
            throw ConfigError("{}: '{}' is neither a size (4GiB) nor a share above 0 of what the "
                              "step needs (50%){}",
                              option, shown_text(text),
                              !is_read        ? ""
                              : names_devices ? "; budgets by device are for runs, a plan is for "
                                                "one device"
                                              : "; auto is for runs");
          }};
}

Bytes budget_in(const PlanningStep& step, const StepBudget& asked) {
  Bytes budget = asked.size;
  if (asked.kind == StepBudget::Kind::kPercent)
    budget = Bytes(static_cast<std::uint64_t>(
        std::floor(asked.percent / 100.0 * static_cast<double>(step.needed.count()))));
  // What the rest of the program needs is told, but known from above only: less may do.
  const std::string small = small_text(step);
  if (budget < step.smallest_of_step)
    throw BudgetError("a budget of {} is too small: {} needs {} at once{}{}; the smallest is "
                      "--budget {}{}",
                      budget, operator_text(step, step.neediest), step.smallest_of_step,
                      small.empty() ? "" : ", ", small, as_option(step.smallest_of_step),
                      smallest_of_program(step));
  return budget;
}

std::string budget_of_run(const PlanningStep& step, Bytes size) {
  const std::string& device = step.profile.origin.device;
  return device.starts_with("cuda:") ? message("{}={}", device, as_option(size)) : as_option(size);
}

void warn_of_oversize(const PlanningStep& step, Bytes budget) {
  const auto& needs = step.profile.program_needs;
  if (!needs || budget + step.profile.page_size >= needs->budget) return;
  const bool is_refused = step.profile.origin.device.starts_with("cuda:") ||
                          needs->budget > runtime::kReachOfOversize * budget;
  log_warning("in a run, {} needs more than the budget of {}. {} (--budget {} has room for it)",
              neediest_text(step), budget, is_refused ? "It is refused" : runtime::kPagesThrough,
              budget_of_run(step, step.smallest));
}

std::string small_text(const PlanningStep& step) {
  constexpr std::uint64_t kTellFrom = 16;  // A share that is worth a word.
  const Bytes small = step.profile.small_bytes;
  if (small < step.needed / kTellFrom || small == Bytes()) return {};
  const bool may_run = step.profile.origin.source == "recorded";
  return message("{} of it in tensors that profiles do not list: plans keep them in memory{}",
                 small, may_run ? ", runs without --plan swap those from 4 KiB on" : "");
}

planner::SwapLimits limits_for(const PlanningStep& step, Bytes budget, const ChosenRates& rates) {
  planner::SwapLimits limits;
  const Bytes room = budget - std::min(budget, step.profile.small_bytes);
  // Planners count pages in 31 bits; more than the step has makes no difference.
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  limits.budget_pages = static_cast<std::uint32_t>(std::min(room / step.profile.page_size, kMost));
  limits.page_size = step.profile.page_size;
  limits.rates = rates.rates;
  limits.far = far_tier(rates, step.profile.page_size);
  return limits;
}

std::string operator_text(const PlanningStep& step, planner::OpIndex op) {
  return kind_text(step.profile.kinds[step.profile.kind_of_op[op]]);
}

std::string neediest_text(const PlanningStep& step) {
  if (!is_set_outside(step)) return operator_text(step, step.neediest);
  const profile::ProgramNeeds& needs = *step.profile.program_needs;
  return message("{} {}", kind_text(needs.op),
                 needs.is_early ? "before the first step ended" : "outside of this step");
}

std::string smallest_of_program(const PlanningStep& step) {
  if (!is_set_outside(step)) return {};
  return message("; in a run, --budget {} has room for {}, too", budget_of_run(step, step.smallest),
                 neediest_text(step));
}

std::string value_text(const PlanningStep& step, planner::ValueIndex value) {
  const planner::OpIndex birth = step.profile.tape.values[value].birth;
  return profile::value_text(
      step.profile.class_of_value[value], value, step.profile.bytes_of_value[value],
      birth == profile::kCarriedIn ? "" : step.profile.kinds[step.profile.kind_of_op[birth]].name);
}

}  // namespace spillway::cli
