#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "planning/plan_figures.h"
#include "planning/planning_rates.h"

namespace spillway::cli {

/// One plan as lines.
std::string plan_text(const PlanningStep& step, const ChosenRates& rates,
                      const PlanFigures& figures);

/// Several plans for one budget as a table, and where the strategies come from.
std::string comparison_text(const PlanningStep& step, const ChosenRates& rates,
                            std::span<const PlanFigures> plans);

/// The lines about step and rates, which stand above every table.
std::string step_text(const PlanningStep& step, const ChosenRates& rates);

/// The keys that planning_output.md describes.
nlohmann::ordered_json figures_json(const PlanningStep& step, const ChosenRates& rates,
                                    const PlanFigures& figures);

/// As files and pipes get it. Bytes that are no UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace spillway::cli
