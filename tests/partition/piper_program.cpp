#include "piper_program.h"

#include <algorithm>
#include <limits>

namespace spillway::partition {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double number(Bytes bytes) { return static_cast<double>(bytes.count()); }

double transfer_seconds(const SegmentCosts& costs, Segment segment) {
  const auto& links = costs.problem().links;
  double seconds = 0.0;
  if (segment.stage > 0 && !links.empty())
    seconds += links[segment.stage - 1].rate.seconds_for(2 * costs.crossing_bytes(segment.first));
  if (segment.stage < links.size())
    seconds += links[segment.stage].rate.seconds_for(2 * costs.crossing_bytes(segment.end));
  return seconds;
}

}  // namespace

double piper_seconds(const SegmentCosts& costs, Segment segment) {
  const auto& layers = costs.problem().chain.layers;
  const double slowdown = costs.problem().devices[segment.stage].slowdown;
  SegmentLoad load = costs.load(segment);
  double seconds = transfer_seconds(costs, segment);
  bool leads = true;
  std::vector<std::pair<double, double>> ways;  // Seconds, bytes.
  for (LayerIndex i = 0; i < costs.first_layer(segment.end); ++i) {
    leads &= layers[i].is_frozen;
    if (i < costs.first_layer(segment.first)) continue;
    seconds += slowdown * (layers[i].forward_seconds + (leads ? 0.0 : layers[i].backward_seconds));
    const auto most = std::min_element(
        layers[i].recompute.begin(), layers[i].recompute.end(),
        [](const RecomputePoint& one, const RecomputePoint& other) {
          return one.stash != other.stash ? one.stash < other.stash : one.seconds < other.seconds;
        });
    if (leads || most == layers[i].recompute.end() || most->stash == layers[i].stash) continue;
    ways.emplace_back(most->seconds * slowdown, number(layers[i].stash - most->stash));
  }
  std::stable_sort(ways.begin(), ways.end(), [](const auto& one, const auto& other) {
    return one.second * other.first > other.second * one.first;
  });
  for (const auto& [more, bytes] : ways) {
    if (load.raw_bytes() <= costs.device_bytes(segment.stage)) break;
    seconds += more;
    load.stash_bytes -= bytes;
  }
  return load.raw_bytes() <= costs.device_bytes(segment.stage) ? seconds : kInfinite;
}

double piper_seconds(const SegmentCosts& costs) {
  std::vector<double> worst(costs.units() + 1, kInfinite);
  worst[0] = 0.0;
  for (std::uint32_t k = 0; k < costs.stages(); ++k) {
    std::vector<double> next(worst.size(), kInfinite);
    for (std::uint32_t end = 1; end < worst.size(); ++end)
      for (std::uint32_t begin = 0; begin < end; ++begin)
        if (worst[begin] < next[end])
          next[end] = std::min(
              next[end], std::max(worst[begin], piper_seconds(costs, Segment{begin, end, k})));
    worst = std::move(next);
  }
  return worst.back();
}

double piper_seconds(const SegmentCosts& costs, const Cuts& cuts) {
  double worst = 0.0;
  for (std::uint32_t k = 0; k < costs.stages(); ++k)
    worst = std::max(worst, piper_seconds(costs, Segment{cuts[k], cuts[k + 1], k}));
  return worst;
}

}  // namespace spillway::partition
