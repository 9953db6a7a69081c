#include "spillway/runtime/learning/planning_options.h"

#include <string>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::runtime {

namespace {

void check_tiers(const planner::PlanFile& plan, const Settings& settings) {
  if (!plan.far) return;
  const Bytes needed = plan.far->near_pages * plan.page_size;
  if (settings.host_tier >= needed) return;
  const std::string has = settings.host_tier == Bytes()
                              ? std::string("disks only")
                              : message("{} before its disks", settings.host_tier);
  throw ConfigError(
      "the plan {} has two tiers, host memory of {} and disks behind it, and this run "
      "has {} (put that before them with --nvme ram:{},DIR, or make a plan without "
      "--host-memory)",
      settings.plan, needed, has, as_option(needed));
}

}  // namespace

PlanningOptions planning_of(const Settings& settings, std::optional<Bytes> budget,
                            const std::string& device) {
  PlanningOptions options;
  options.moment = settings.planning;
  options.recomputes = settings.recompute;
  const planner::Strategy& strategy = planner::strategy_named(settings.strategy);
  const bool is_ours = &strategy == &planner::strategies().front();
  options.strategy = is_ours ? nullptr : &strategy;
  if (settings.plan.empty() || settings.split) return options;  // The split has its own kind.
  if (!settings.prefetch)
    throw ConfigError("the plan {} needs --prefetch on: without it no plan is followed",
                      settings.plan);
  if (!is_ours)
    throw ConfigError("--strategy {} has no place beside --plan: a stored plan has its own",
                      settings.strategy);
  const std::string text = topology::text_of_file(
      settings.plan,
      message("spillway plan PROFILE --budget SIZE --out {}", shell_word(settings.plan)));
  auto plan = std::make_shared<planner::PlanFile>(planner::parse_plan_file(text, settings.plan));
  if (plan->device != device) {
    options.stored_elsewhere = plan->device.empty() ? "the CPU" : plan->device;
    return options;
  }
  if (device.empty()) check_tiers(*plan, settings);
  if (budget && *budget < plan->budget)
    throw ConfigError("the plan {} was made for {}, more than the {} of this run{} (run it with "
                      "--budget {}{}, or make one for this budget with: spillway plan)",
                      settings.plan, plan->budget, *budget,
                      device.empty() ? "" : message(" on {}", device),
                      device.empty() ? "" : message("{}=", device), as_option(plan->budget));
  options.stored = std::move(plan);
  options.stored_name = settings.plan;
  return options;
}

}  // namespace spillway::runtime
