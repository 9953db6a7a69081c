#pragma once

#include <span>
#include <string>

#include "planning/plan_figures.h"
#include "planning/planning_rates.h"
#include "planning/report_table.h"

namespace spillway::cli {

/// One plan as lines.
std::string plan_text(const PlanningStep& step, const ChosenRates& rates,
                      const PlanFigures& figures);

/// Several plans for one budget as a table, and where the strategies come from.
std::string comparison_text(const PlanningStep& step, const ChosenRates& rates,
                            std::span<const PlanFigures> plans);

/// The figures of several plans; of one that was refused, few.
Table plan_table(const PlanningStep& step, const ChosenRates& rates,
                 std::span<const PlanFigures> plans);

/// The lines about step and rates, which stand above every table.
std::string step_text(const PlanningStep& step, const ChosenRates& rates);

/// The keys that planning_output.md describes.
nlohmann::ordered_json figures_json(const PlanningStep& step, const ChosenRates& rates,
                                    const PlanFigures& figures);

}  // namespace spillway::cli
