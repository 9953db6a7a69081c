#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/schedule/schedule_csv.h"

namespace spillway::schedule {
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

/// Compute, messages of micro-batches, and what PyTorch does itself behind the last of them.
bool is_of_pytorch(const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kBackward:
    case ActionKind::kInputGradient:
    case ActionKind::kWeightGradient:
    case ActionKind::kSendForward:
    case ActionKind::kReceiveForward:
    case ActionKind::kSendBackward:
    case ActionKind::kReceiveBackward: return action.replica == 0;
    case ActionKind::kReduce:
    case ActionKind::kStep: return action.micro_batch == kNoMicroBatch;
    default: return false;
  }
}

}  // namespace

std::optional<Schedule> for_pytorch(Schedule schedule) {
  if (schedule.weight_rule != WeightRule::kNewest || schedule.untrained_stages != 0 ||
      schedule.replica_count() > 1)
    return std::nullopt;
  schedule.data_parallel = 1;
  for (auto& list : schedule.ranks) {
    if (!std::all_of(list.begin(), list.end(), is_of_pytorch)) return std::nullopt;
    std::erase_if(list, [](const Action& action) {
      return action.kind == ActionKind::kReduce || action.kind == ActionKind::kStep;
    });
  }
  return schedule;
}

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

}  // namespace spillway::schedule
