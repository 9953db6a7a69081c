#include "spillway/planner/cluster/fair_flows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "spillway/base/assert.h"

namespace spillway::cluster {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
/// Of rates, sums of rates and moments that differ by rounding only.
constexpr double kRounding = 1e-9;
constexpr double kSameMoment = 1e-12;

}  // namespace

FairFlows::FairFlows(std::vector<double> rates) : links_(rates.size()) {
  for (std::size_t i = 0; i < rates.size(); ++i) {
    SPILLWAY_ASSERT(rates[i] > 0.0);
    links_[i].rate = rates[i];
  }
}

// Where all flows fit at the most that each can have, the link slows nobody. Changes do not spread
// over it, which is what keeps large machines affordable.
bool FairFlows::hinders(const Link& link) const {
  return link.wanted > link.rate * (1.0 + kRounding);
}

void FairFlows::touch(std::uint32_t link) {
  if (links_[link].is_touched || !hinders(links_[link])) return;
  links_[link].is_touched = true;
  touched_.push_back(link);
}

void FairFlows::start(std::span<const LinkUse> route, double bytes, std::uint32_t tag, double now) {
  // Numbers are used again: a job has far more transfers than are under way at a time.
  if (free_.empty()) {
    free_.push_back(static_cast<FlowId>(flows_.size()));
    flows_.emplace_back();
  }
  const FlowId id = free_.back();
  free_.pop_back();
  Flow& flow = flows_[id];
  flow.route = route;
  flow.places.clear();
  flow.bytes = flow.left = bytes;
  flow.since = now;
  flow.rate = 0.0;
  flow.number = count_++;
  flow.tag = tag;
  flow.is_alive = true;
  flow.most = kInfinite;
  // Alone on its route, a flow is as fast as the slowest link lets it be.
  for (const LinkUse& use : route)
    flow.most = std::min(flow.most, links_[use.link].rate / use.streams);
  for (std::uint32_t slot = 0; slot < route.size(); ++slot) {
    Link& link = links_[route[slot].link];
    flow.places.push_back(static_cast<std::uint32_t>(link.flows.size()));
    link.flows.push_back({id, slot});
    link.wanted += flow.most * route[slot].streams;
    touch(route[slot].link);
  }
  // It ends at once, but in its turn among the ends of this moment.
  if (route.empty() || bytes <= 0.0)
    ends_.push({now, flow.number, id, ++flow.version});
  else
    changed_.push_back(id);
}

void FairFlows::remove(FlowId id) {
  Flow& flow = flows_[id];
  for (std::uint32_t slot = 0; slot < flow.route.size(); ++slot) {
    const LinkUse& use = flow.route[slot];
    Link& link = links_[use.link];
    touch(use.link);  // Those whom it hindered may go on faster.
    link.carried += flow.bytes * use.streams;
    link.wanted -= flow.most * use.streams;
    // The last one takes its place: the order of flows on a link has no meaning.
    const Passage last = link.flows.back();
    link.flows[flow.places[slot]] = last;
    flows_[last.flow].places[last.slot] = flow.places[slot];
    link.flows.pop_back();
    if (link.flows.empty()) link.wanted = 0.0;  // Lest rounding adds up.
  }
  // Its end is still in the queue, and must not be taken for that of the next flow of this number.
  ++flow.version;
  flow.is_alive = false;
  free_.push_back(id);
}

void FairFlows::reach(FlowId id) {
  if (flows_[id].mark == round_) return;
  flows_[id].mark = round_;
  flows_[id].is_fixed = false;
  reached_.push_back(id);
}

/// All flows whose rates may change: from those that started and the links that were touched, over
/// links on which flows hinder each other.
void FairFlows::collect() {
  ++round_;
  reached_.clear();
  reached_links_.clear();
  for (const FlowId id : changed_)
    if (flows_[id].is_alive) reach(id);
  for (const std::uint32_t link : touched_) {
    links_[link].is_touched = false;
    for (const Passage& passage : links_[link].flows) reach(passage.flow);
  }
  changed_.clear();
  touched_.clear();
  for (std::size_t i = 0; i < reached_.size(); ++i)
    for (const LinkUse& use : flows_[reached_[i]].route) {
      Link& link = links_[use.link];
      if (link.mark != round_) {
        link.mark = round_;
        link.left = link.rate;
        link.streams = 0.0;
        reached_links_.push_back(use.link);
        if (hinders(link))
          for (const Passage& passage : link.flows) reach(passage.flow);
      }
      link.streams += use.streams;
    }
}

void FairFlows::set_rate(FlowId id, double rate, double now) {
  Flow& flow = flows_[id];
  // Its end stays where it is in the queue, and so do the digits of its moment.
  if (flow.rate == rate) return;
  flow.left = std::max(0.0, flow.left - flow.rate * (now - flow.since));
  flow.since = now;
  flow.rate = rate;
  ends_.push({now + flow.left / rate, flow.number, id, ++flow.version});
}

/// Raises all rates together; where a link is full, its flows have theirs.
void FairFlows::fill(double now) {
  using Level = std::pair<double, std::uint32_t>;
  std::vector<Level> levels;
  for (const std::uint32_t link : reached_links_)
    levels.emplace_back(links_[link].left / links_[link].streams, link);
  std::priority_queue<Level, std::vector<Level>, std::greater<>> next(std::greater<>(),
                                                                      std::move(levels));
  std::size_t unfixed = reached_.size();
  while (unfixed > 0) {
    const auto [level, full] = next.top();
    next.pop();
    Link& link = links_[full];
    if (link.streams < 0.5 * kRounding) continue;  // All its flows have their rates.
    const double now_level = std::max(0.0, link.left) / link.streams;
    if (now_level > level * (1.0 + kRounding)) {  // Levels only rise, so this was known too early.
      next.emplace(now_level, full);
      continue;
    }
    for (const Passage& passage : link.flows) {
      Flow& flow = flows_[passage.flow];
      if (flow.mark != round_ || flow.is_fixed) continue;
      flow.is_fixed = true;
      --unfixed;
      // What it takes at its level is gone for the flows that go on to higher ones.
      for (const LinkUse& use : flow.route) {
        links_[use.link].left -= level * use.streams;
        links_[use.link].streams -= use.streams;
      }
      set_rate(passage.flow, level, now);
    }
  }
}

void FairFlows::settle(double now) {
  if (changed_.empty() && touched_.empty()) return;
  collect();
  fill(now);
}

double FairFlows::next_end() {
  // A queue cannot change an entry. Ends of rates that were replaced are dropped when they come up.
  while (!ends_.empty() && ends_.top().version != flows_[ends_.top().flow].version) ends_.pop();
  return ends_.empty() ? kInfinite : ends_.top().seconds;
}

void FairFlows::take_ended(double now, std::vector<std::uint32_t>& tags) {
  // Transfers that end together but for rounding are taken together. Else each would get new rates
  // for a moment of no length.
  const double until = now + kSameMoment * now;
  while (next_end() <= until) {
    const FlowId id = ends_.top().flow;
    ends_.pop();
    tags.push_back(flows_[id].tag);
    remove(id);
  }
}

}  // namespace spillway::cluster
