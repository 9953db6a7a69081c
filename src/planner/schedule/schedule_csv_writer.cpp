#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_csv.h"

namespace spillway::planner {
namespace {

bool is_pair(const std::vector<Action>& actions, std::size_t i) {
  return actions[i].overlaps_next && i + 1 < actions.size();
}

std::string header_of(const Schedule& schedule) {
  std::string header;
  if (schedule.weight_rule == WeightRule::kPrevious) header += ",weights=previous";
  if (schedule.data_parallel != 1) header += message(",data_parallel={}", schedule.data_parallel);
  if (schedule.untrained_stages != 0)
    header += message(",untrained_stages={}", schedule.untrained_stages);
  return header.empty() ? header : message("#spillway-schedule 1{}\n", header);
}

}  // namespace

std::string to_csv(const Schedule& schedule) {
  check_shape(schedule);
  std::string text = header_of(schedule);
  for (const auto& actions : schedule.ranks) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (i > 0) text += ",";
      if (is_pair(actions, i)) {
        text += message("({};{})OVERLAP_F_B", actions[i], actions[i + 1]);
        ++i;
      } else {
        text += to_string(actions[i]);
      }
    }
    text += actions.empty() ? ",\n" : "\n";
  }
  return text;
}

}  // namespace spillway::planner
