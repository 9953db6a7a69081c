#include "spillway/runtime/reporting/run_statistics.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spillway/topology/atomic_file.h"
#include "statistics_fields.h"

namespace spillway::runtime {

Bytes RunStatistics::planned_peak() const {
  if (learned.plan_steps == 0) return {};
  const Bytes beside = plans_know_shared ? Bytes() : shared_peak;
  return std::min(budget, learned.planned_peak + memory.small_peak + beside);
}

Bytes RunStatistics::all_disk_written() const {
  Bytes all = disk_written;
  for (const RunStatistics& each : devices) all += each.disk_written;
  return all;
}

std::string to_json(const RunStatistics& statistics) {
  nlohmann::ordered_json json;
  for (const StatisticsField& field : statistics_fields())
    json[std::string(field.key)] = field.value(statistics);
  // Names of programs and folders need not be UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void write_statistics(const std::string& path, const RunStatistics& statistics) {
  topology::write_file_at_once(path, to_json(statistics));
}

}  // namespace spillway::runtime
