#include "slow_costs.h"

#include <algorithm>
#include <vector>

namespace spillway::partition {
namespace {

double number(Bytes bytes) { return static_cast<double>(bytes.count()); }

struct Choice {
  double seconds = 0.0;
  double saved = 0.0;
};

std::vector<Choice> choices_of(const ModelLayer& layer, double slowdown) {
  std::vector<Choice> all{{0.0, 0.0}};
  for (const RecomputePoint& point : layer.recompute)
    all.push_back({point.seconds * slowdown, number(layer.stash) - number(point.stash)});
  return all;
}

}  // namespace

SlowCosts::SlowCosts(const PartitionProblem& problem, LayerIndex first, LayerIndex end,
                     std::uint32_t stage)
    : problem_(problem), first_(first), end_(end), stage_(stage) {
  while (lead_ < problem.chain.layers.size() && problem.chain.layers[lead_].is_frozen) ++lead_;
  add_layers();
  add_borders();
}

void SlowCosts::add_layers() {
  const auto& layers = problem_.chain.layers;
  const HeldCounts& held = problem_.devices[stage_].held;
  const auto static_bytes = [&](LayerIndex i, double parameters) {
    if (layers[i].is_frozen) return held.state_copies * parameters;
    const double states = parameters * (layers[i].static_ratio - 1.0);
    return held.state_copies * states + held.weight_versions * parameters;
  };
  double peak = 0.0;
  for (LayerIndex i = first_; i < end_; ++i) {
    const double backward = i < lead_ ? 0.0 : layers[i].backward_seconds;
    seconds += (layers[i].forward_seconds + backward) * problem_.devices[stage_].slowdown;
    fixed_bytes += static_bytes(i, number(layers[i].parameters));
    fixed_bytes += number(layers[i].buffers);
    if (i >= lead_) stash_bytes += number(layers[i].stash);
    peak = std::max(peak, number(layers[i].working_peak));
  }
  for (const TiedWeights& tie : problem_.chain.ties) {
    bool is_there = false;
    for (LayerIndex i = first_; i < end_; ++i) {
      if (std::find(tie.layers.begin(), tie.layers.end(), i) == tie.layers.end()) continue;
      if (is_there) fixed_bytes -= static_bytes(i, number(tie.bytes));
      is_there = true;
    }
  }
  fixed_bytes += peak + number(problem_.devices[stage_].reserved);
}

void SlowCosts::add_borders() {
  double into = 0.0;
  double out = 0.0;
  for (const BorderTensor& border : problem_.chain.borders) {
    bool is_read_here = false;
    bool is_kept_here = false;  // No gradient needs what leading frozen layers read.
    bool is_read_behind = false;
    for (const LayerIndex reader : border.consumers) {
      const bool is_here = reader >= first_ && reader < end_;
      is_read_here |= is_here;
      is_kept_here |= is_here && reader >= lead_;
      is_read_behind |= reader >= end_;
    }
    if (border.producer < end_ && is_read_behind) out += number(border.bytes);
    if (border.producer >= first_ || !(is_read_here || is_read_behind)) continue;
    into += number(border.bytes);
    (is_kept_here ? stash_bytes : fixed_bytes) += number(border.bytes);
  }
  if (problem_.links.empty()) return;
  const auto busy = [&](std::uint32_t link, double bytes) {
    return problem_.links[link].latency_seconds +
           bytes / problem_.links[link].rate.bytes_per_second();
  };
  const double before = stage_ > 0 ? busy(stage_ - 1, into) : 0.0;
  const double behind = stage_ + 1 < problem_.devices.size() ? busy(stage_, out) : 0.0;
  if (problem_.transfers_hide) {
    link_seconds = std::max(before, behind);
  } else {
    const auto ways = [&](LayerIndex cut) { return cut > 0 && cut <= lead_ ? 1.0 : 2.0; };
    seconds += before * ways(first_) + behind * ways(end_);
  }
}

double SlowCosts::saved_bytes(double slack) const {
  const auto& layers = problem_.chain.layers;
  const double slowdown = problem_.devices[stage_].slowdown;
  std::vector<double> prices{0.0, 1e12};
  for (LayerIndex i = std::max(first_, lead_); i < end_; ++i) {
    const std::vector<Choice> choices = choices_of(layers[i], slowdown);
    for (const Choice& one : choices)
      for (const Choice& other : choices)
        if (other.seconds > one.seconds && other.saved > one.saved)
          prices.push_back((other.saved - one.saved) / (other.seconds - one.seconds));
  }
  double least = 1e300;
  for (const double price : prices) {
    double dual = price * slack;
    for (LayerIndex i = std::max(first_, lead_); i < end_; ++i) {
      double best = 0.0;
      for (const Choice& choice : choices_of(layers[i], slowdown))
        best = std::max(best, choice.saved - price * choice.seconds);
      dual += best;
    }
    least = std::min(least, dual);
  }
  return least;
}

double SlowCosts::least_bytes(double at_seconds, double rate) const {
  if (at_seconds < seconds || at_seconds < link_seconds) return kNever;
  const double swapped = rate > 0.0 ? at_seconds * rate : 0.0;
  const double left = stash_bytes - saved_bytes(at_seconds - seconds) - swapped;
  const double in_flight = problem_.devices[stage_].held.in_flight;
  return fixed_bytes + in_flight * std::max(0.0, left);
}

double SlowCosts::least_seconds(double bytes, double rate) const {
  double low = 0.0;
  double high = 1e9;
  if (least_bytes(high, rate) > bytes) return kNever;
  for (int i = 0; i < 120; ++i) {
    const double middle = low + (high - low) / 2;
    (least_bytes(middle, rate) <= bytes ? high : low) = middle;
  }
  return high;
}

}  // namespace spillway::partition
