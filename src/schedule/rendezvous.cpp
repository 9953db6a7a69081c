#include "rendezvous.h"

#include <algorithm>
#include <numeric>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/schedule/boundary_stages.h"
#include "spillway/schedule/messages.h"

namespace spillway::schedule {

Rendezvous::Rendezvous(const Schedule& schedule, const WeightCopies& copies)
    : schedule_(schedule),
      copies_(copies),
      has_messages_(has_messages(schedule)),
      next_(schedule.ranks.size(), 0),
      made_(has_messages_ ? 0 : 2 * schedule.all_micro_batches() * schedule.stages, false),
      work_(schedule.ranks.size()),
      joined_(schedule.stages, 0) {
  std::iota(work_.rbegin(), work_.rend(), 0U);
}

bool Rendezvous::is_at(std::uint32_t rank, const Action& action) const {
  return !is_over(rank) && current(rank) == action;
}

std::optional<Action> Rendezvous::source_of(const Action& action) const {
  const auto stage = input_stage(schedule_, action);
  if (!stage) return std::nullopt;
  Action source = action;
  source.overlaps_next = false;
  source.stage = *stage;
  return source;
}

bool Rendezvous::has_input(const Action& action) const {
  const auto source = source_of(action);
  return !source || made_[made(*source, /*is_gradient=*/action.kind != ActionKind::kForward)];
}

const Action* Rendezvous::second_of(std::uint32_t rank, const Action& action) const {
  const bool is_pair = action.overlaps_next && next_[rank] + 1 < schedule_.ranks[rank].size();
  return is_pair ? &schedule_.ranks[rank][next_[rank] + 1] : nullptr;
}

// Two that run as one start when both can.
bool Rendezvous::pass_compute(std::uint32_t rank, const Action& action) {
  if (has_messages_ || !is_model_compute(action.kind)) return true;
  const Action* second = second_of(rank, action);
  if (!has_input(action) || (second && !has_input(*second))) return false;
  const bool is_forward = action.kind == ActionKind::kForward;
  if (!is_forward && !makes_input_gradient(action.kind)) return true;
  made_[made(action, !is_forward)] = true;
  if (const auto stage = output_stage(schedule_, action)) {
    const std::uint32_t user = schedule_.rank_of(action.replica, *stage);
    if (user != rank) work_.push_back(user);
  }
  return true;
}

// One that has come waits there, so nobody is looked at twice.
bool Rendezvous::are_all_at(const Action& action) {
  const auto& reducers = copies_.reducers(action.stage);
  std::size_t& joined = joined_[action.stage];
  while (joined < reducers.size() && is_at(reducers[joined], action)) ++joined;
  return joined == reducers.size();
}

bool Rendezvous::pass_reduction(const Action& action) {
  if (!are_all_at(action)) return false;
  joined_[action.stage] = 0;
  for (const std::uint32_t rank : copies_.reducers(action.stage)) {
    ++next_[rank];
    work_.push_back(rank);
  }
  return true;
}

/// Whether the rank goes on; where others go on with it, they are put to work.
bool Rendezvous::pass(std::uint32_t rank, const Action& action) {
  if (action.kind == ActionKind::kReduce) return pass_reduction(action);
  if (is_send(action.kind) || is_receive(action.kind)) {
    const std::uint32_t peer = *peer_of(schedule_, copies_, rank, action);
    if (!is_at(peer, match_of(schedule_, action))) return false;
    ++next_[peer];
    work_.push_back(peer);
  } else if (!pass_compute(rank, action)) {
    return false;
  }
  ++next_[rank];
  return true;
}

void Rendezvous::run(std::uint32_t rank) {
  while (!is_over(rank) && pass(rank, current(rank))) {
  }
}

std::uint32_t Rendezvous::awaited_by(std::uint32_t rank) const {
  const Action& action = current(rank);
  if (is_send(action.kind) || is_receive(action.kind))
    return *peer_of(schedule_, copies_, rank, action);
  if (action.kind == ActionKind::kReduce) {
    const auto& holders = copies_.reducers(action.stage);
    return *std::find_if(holders.begin(), holders.end(),
                         [&](std::uint32_t holder) { return !is_at(holder, action); });
  }
  const Action* second = second_of(rank, action);
  const auto source = source_of(second && has_input(action) ? *second : action);
  SPILLWAY_ASSERT(source.has_value());
  return schedule_.rank_of(source->replica, source->stage);
}

ScheduleFault Rendezvous::describe(std::vector<std::uint32_t> cycle) const {
  constexpr std::size_t kMostNamed = 8;
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
  std::string reason = "deadlock: it waits for ";
  for (std::size_t i = 1; i < std::min(cycle.size(), kMostNamed); ++i)
    reason += message("rank {}, whose {} waits for ", cycle[i], current(cycle[i]));
  if (cycle.size() > kMostNamed)
    reason += message("{} more, which wait for ", cycle.size() - kMostNamed);
  reason += message("rank {}", cycle.front());
  return {cycle.front(), next_[cycle.front()], current(cycle.front()), reason};
}

std::optional<ScheduleFault> Rendezvous::fault() {
  while (!work_.empty()) {
    const std::uint32_t rank = work_.back();
    work_.pop_back();
    run(rank);
  }
  std::uint32_t rank = 0;
  while (rank < schedule_.rank_count() && is_over(rank)) ++rank;
  if (rank == schedule_.rank_count()) return std::nullopt;
  std::vector<std::uint32_t> way;
  std::vector<bool> is_on_way(schedule_.ranks.size(), false);
  while (!is_on_way[rank]) {
    is_on_way[rank] = true;
    way.push_back(rank);
    const std::uint32_t awaited = awaited_by(rank);
    if (is_over(awaited))
      return ScheduleFault{rank, next_[rank], current(rank),
                           message("it waits for rank {}, whose action list is over", awaited)};
    rank = awaited;
  }
  way.erase(way.begin(), std::find(way.begin(), way.end(), rank));
  return describe(std::move(way));
}

}  // namespace spillway::schedule
