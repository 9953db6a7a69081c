#include "spillway/schedule/messages.h"

#include "spillway/schedule/boundary_stages.h"

namespace spillway::schedule {
namespace {

std::optional<std::uint32_t> other_stage(const Schedule& schedule, const Action& action) {
  return is_send(action.kind) ? output_stage(schedule, action) : input_stage(schedule, action);
}

}  // namespace

bool is_of_parameters(ActionKind kind) {
  return (is_send(kind) || is_receive(kind)) && !needs_micro_batch(kind);
}

bool has_messages(const Schedule& schedule) {
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions)
      if ((is_send(action.kind) || is_receive(action.kind)) && needs_micro_batch(action.kind))
        return true;
  return false;
}

std::optional<std::uint32_t> peer_of(const Schedule& schedule, const WeightCopies& copies,
                                     std::uint32_t rank, const Action& action) {
  if (is_of_parameters(action.kind)) {
    const auto& holders = copies.holders(action.stage);
    if (holders.size() != 2) return std::nullopt;
    return holders[0] == rank ? holders[1] : holders[0];
  }
  const auto stage = other_stage(schedule, action);
  if (!stage) return std::nullopt;
  const std::uint32_t peer = schedule.rank_of(action.replica, *stage);
  if (peer == rank) return std::nullopt;
  return peer;
}

Action match_of(const Schedule& schedule, const Action& action) {
  Action match = action;
  match.kind = counterpart(action.kind);
  match.overlaps_next = false;
  if (!is_of_parameters(action.kind)) match.stage = *other_stage(schedule, action);
  return match;
}

}  // namespace spillway::schedule
