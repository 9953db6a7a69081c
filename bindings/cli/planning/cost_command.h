#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::cli {

/// Options of `costs`.
struct CostOptions {
  std::string costs;  ///< File with the time of each layer.
  std::uint32_t ranks = 0;
  std::string_view partitioner = planner::partitioners().front().name;
  bool compare = false;  ///< All partitioners.
  bool json = false;
};

/// `spillway costs`: cuts a list of layer times, with one partitioner or with all, and prints;
/// returns an exit code. Throws ConfigError, PlanError and IoError.
int cut_costs(const CostOptions& options, std::ostream& out, const Clock& clock);

/// The numbers of a text, between blanks, commas or line ends; what follows a # is passed over.
/// Throws ConfigError with file and line for anything else, and for a text without a number.
std::vector<double> costs_in(const std::string& text, const std::string& file);

}  // namespace spillway::cli
