#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "spillway/runtime/reporting/run_statistics.h"

namespace spillway::runtime {

/// One key of the statistics file.
struct StatisticsField {
  std::string_view key;
  std::string_view unit;  ///< "bytes", "s", "B/s", "" for counts, words and lists.
  nlohmann::ordered_json (*value)(const RunStatistics&);
  std::string_view meaning;    ///< One line of Markdown.
  bool is_of_process = false;  ///< It says nothing of a device by itself.
};

/// All keys in the order of the file. A new figure needs its member and one row here; the page
/// statistics.md is made of these rows (`statistics_table`), and a test compares the two.
std::span<const StatisticsField> statistics_fields();

/// The table of statistics.md.
std::string statistics_table();

}  // namespace spillway::runtime
