#include "fair_links.h"

#include <algorithm>
#include <utility>

namespace spillway::cluster {

FairLinks::FairLinks(FlowTable& flows, std::vector<std::vector<SumPhase>> phases,
                     bool copies_to_disk, std::uint32_t pipelines, std::vector<double> rates,
                     RouteOf route_of)
    : planner_schedule::ScheduleLinks(/*knows_ends=*/false),
      flows_(flows),
      phases_(std::move(phases)),
      copies_to_disk_(copies_to_disk),
      pipelines_(pipelines),
      route_of_(std::move(route_of)),
      shares_(std::move(rates)),
      queues_of_(std::size_t{pipelines} * flows.ranks()),
      sums_(phases_.size()),
      lanes_(queues_of_.size()) {}

FairLinks::Queue& FairLinks::queue_of(std::uint32_t rank, std::uint32_t to) {
  // A rank has few of them, so looking through them is as quick as a table.
  for (Queue* queue : queues_of_[rank])
    if (queue->to == to) return *queue;
  const std::uint32_t ranks = flows_.ranks();
  const bool is_copy = to == kOut || to == kIn;
  Queue& queue = queues_.emplace_back();
  queue.rank = rank;
  queue.to = to;
  queue.flow = is_copy ? flows_.copy(rank % ranks, to == kOut, copies_to_disk_)
                       : flows_.message(rank % ranks, to % ranks);
  queues_of_[rank].push_back(&queue);
  return queue;
}

planner_schedule::ScheduleLinks::Transfer FairLinks::send(std::uint32_t from, std::uint32_t to,
                                                          Bytes size, double now) {
  now_ = now;
  return ask(queue_of(from, to), size, kNone);
}

planner_schedule::ScheduleLinks::Transfer FairLinks::copy(std::uint32_t rank, bool is_out,
                                                          Bytes size, double since, Id after) {
  // A copy may be asked for after the moment from which on it is wanted.
  now_ = std::max(now_, since);
  return ask(queue_of(rank, is_out ? kOut : kIn), size, after);
}

planner_schedule::ScheduleLinks::Id FairLinks::add(const Asked& asked) {
  asked_.push_back(asked);
  return static_cast<Id>(asked_.size() - 1);
}

planner_schedule::ScheduleLinks::Transfer FairLinks::ask(Queue& queue, Bytes size, Id after) {
  const Id id = add({&queue, 0, after, planner_schedule::count_of(size)});
  queue.waiting.push_back(id);
  go_on(queue);
  return {.id = id};
}

void FairLinks::go_on(Queue& queue) {
  if (queue.is_busy || queue.waiting.empty()) return;
  const Id id = queue.waiting.front();
  const Asked& next = asked_[id];
  // The first in the queue holds up all behind it: copy engines do not overtake.
  if (next.after != kNone && !asked_[next.after].is_over) return;
  queue.waiting.erase(queue.waiting.begin());
  // Latency comes on top behind, so the next one may begin as soon as the bytes have left.
  queue.is_busy = true;
  shares_.start(route_of_(queue.flow, queue.rank / flows_.ranks()).uses, next.bytes, id, now_);
}

/// Something has ended that one of them may have waited for.
void FairLinks::go_on_with_copies(std::uint32_t rank) {
  for (Queue* queue : queues_of_[rank])
    if (queue->to == kOut || queue->to == kIn) go_on(*queue);
}

/// In the order in which a rank comes to them, sums pass each lane.
planner_schedule::ScheduleLinks::Id FairLinks::join(std::uint32_t rank, std::uint32_t stage) {
  const std::vector<SumPhase>& phases = phases_[stage];
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (i > 0 && phases[i - 1].lane == phases[i].lane) continue;
    if (lanes_[rank].size() <= phases[i].lane) lanes_[rank].resize(phases[i].lane + 1);
    lanes_[rank][phases[i].lane].push_back(stage);
  }
  Sum& sum = sums_[stage];
  if (sum.id == kNone) sum.id = add({nullptr, stage});
  return sum.id;
}

planner_schedule::ScheduleLinks::Transfer FairLinks::sum(std::uint32_t stage,
                                                         std::span<const std::uint32_t> members,
                                                         double now) {
  now_ = now;
  Sum& sum = sums_[stage];
  // Gradients are summed over all pipelines, so ranks of each of them take part.
  for (std::uint32_t pipeline = 0; pipeline < pipelines_; ++pipeline)
    for (const std::uint32_t rank : members) sum.ranks.push_back(pipeline * flows_.ranks() + rank);
  const Id id = sum.id;
  if (phases_[stage].empty()) {
    end_sum(stage);
    return {now, now, id};
  }
  sum.is_ready = true;
  begin_phase(stage);
  return {.id = id};
}

/// When it is its turn on all ranks.
void FairLinks::begin_phase(std::uint32_t stage) {
  Sum& sum = sums_[stage];
  if (!sum.is_ready) return;
  const SumPhase& phase = phases_[stage][sum.phase];
  for (const std::uint32_t rank : sum.ranks)
    // A rank whose engine is busy with another stage keeps all others waiting.
    if (lanes_[rank][phase.lane].front() != stage) return;
  sum.is_ready = false;
  sum.started = now_;
  shares_.start(route_of_(phase.flow, 0).uses, phase.bytes, sum.id, now_);
}

double FairLinks::next_end(double now) {
  shares_.settle(now);
  const double next = shares_.next_end();
  return arrivals_.empty() ? next : std::min(next, arrivals_.top().first);
}

void FairLinks::take_ended(double now, std::vector<Id>& ended) {
  now_ = now;
  while (!arrivals_.empty() && arrivals_.top().first <= now) {
    const Id id = arrivals_.top().second;
    arrivals_.pop();
    arrive(id);
  }
  std::vector<Id> left;
  shares_.take_ended(now, left);
  for (const Id id : left) end_flow(id);
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

/// Its links are free; with a latency, its last byte is still on the way.
void FairLinks::end_flow(Id id) {
  const Asked& left = asked_[id];
  double latency = 0.0;
  if (left.queue) {
    Queue& queue = *left.queue;
    latency = route_of_(queue.flow, queue.rank / flows_.ranks()).latency_seconds;
    queue.is_busy = false;
    go_on(queue);
  } else {
    const Sum& sum = sums_[left.stage];
    // A sum takes at least the time of a block on its way around, however free its links are.
    latency = sum.started + phases_[left.stage][sum.phase].least_seconds - now_;
    leave_lane(left.stage);
  }
  if (latency > 0.0)
    arrivals_.emplace(now_ + latency, id);
  else
    arrive(id);
}

void FairLinks::leave_lane(std::uint32_t stage) {
  const Sum& sum = sums_[stage];
  const std::vector<SumPhase>& phases = phases_[stage];
  const std::uint32_t lane = phases[sum.phase].lane;
  // The engine stays with its stage until the last phase on it.
  if (sum.phase + 1 < phases.size() && phases[sum.phase + 1].lane == lane) return;
  for (const std::uint32_t rank : sum.ranks) {
    auto& stages = lanes_[rank][lane];
    stages.erase(stages.begin());
    if (!stages.empty()) begin_phase(stages.front());
  }
}

void FairLinks::arrive(Id id) {
  Asked& over = asked_[id];
  if (!over.queue) return end_phase(over.stage);
  over.is_over = true;
  ended_.push_back(id);
  // A copy back may have waited for the one out, which is in the other queue.
  if (over.queue->to == kOut || over.queue->to == kIn) go_on_with_copies(over.queue->rank);
}

void FairLinks::end_phase(std::uint32_t stage) {
  Sum& sum = sums_[stage];
  sum.is_ready = ++sum.phase < phases_[stage].size();
  if (sum.is_ready) return begin_phase(stage);
  ended_.push_back(sum.id);
  end_sum(stage);
}

void FairLinks::end_sum(std::uint32_t stage) {
  const Sum over = std::exchange(sums_[stage], {});
  asked_[over.id].is_over = true;
  for (const std::uint32_t rank : over.ranks) go_on_with_copies(rank);
}

}  // namespace spillway::cluster
