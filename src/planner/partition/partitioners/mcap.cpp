#include <algorithm>
#include <cmath>
#include <random>

#include "balanced_cuts.h"
#include "gaussian_process.h"
#include "raw_goal.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::planner {
namespace {

constexpr double kMostEnumerated = 2e5;
constexpr int kFirstPoints = 30;
constexpr int kIterations = 100;
constexpr int kCandidates = 200;
constexpr std::uint64_t kSeed = 20220822;

/// Ways to cut units into stages, or more than `kMostEnumerated`.
double ways_to_cut(std::uint32_t units, std::uint32_t stages) {
  double ways = 1.0;
  for (std::uint32_t k = 1; k < stages && ways <= kMostEnumerated * units; ++k)
    ways *= static_cast<double>(units - k) / k;
  return ways;
}

/// Each coordinate is the share of the units that are left which a stage takes.
Cuts cuts_at(const std::vector<double>& point, std::uint32_t units) {
  const auto stages = static_cast<std::uint32_t>(point.size() + 1);
  Cuts cuts{0};
  for (std::uint32_t k = 0; k + 1 < stages; ++k) {
    const std::uint32_t left = units - cuts.back();
    const std::uint32_t most = left - (stages - 1 - k);
    const auto taken = static_cast<std::uint32_t>(std::lround(point[k] * left));
    cuts.push_back(cuts.back() + std::clamp(taken, 1U, most));
  }
  cuts.push_back(units);
  return cuts;
}

/// Bayesian optimization: a Gaussian process of the peaks seen so far, and next the candidate that
/// promises most.
template <typename PeakOf>
Cuts cut_bayesian(std::uint32_t units, std::uint32_t stages, const PeakOf& peak_of) {
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<double> share(0.0, 1.0);
  const auto any_point = [&] {
    std::vector<double> point;
    // Around an even cut of what is left, since others are hopeless for many stages.
    for (std::uint32_t k = 0; k + 1 < stages; ++k)
      point.push_back(std::min(1.0, 2.0 * share(random) / (stages - k)));
    return point;
  };
  GaussianProcess process;
  Cuts best;
  double least = kNever;
  for (int i = 0; i < kFirstPoints + kIterations; ++i) {
    std::vector<double> point = any_point();
    if (i >= kFirstPoints) {
      double most = process.expected_gain(point, least);
      for (int c = 1; c < kCandidates; ++c) {
        std::vector<double> other = any_point();
        const double gain = process.expected_gain(other, least);
        if (gain > most) most = gain, point = std::move(other);
      }
    }
    Cuts cuts = cuts_at(point, units);
    const double peak = peak_of(cuts);
    if (peak < least) least = peak, best = std::move(cuts);
    process.add(std::move(point), peak);
  }
  return best;
}

Cuts cut_mcap(const SegmentCosts& costs) {
  // What one device with these units has at the peak, whichever stage it is.
  const auto peak = [&](Segment segment) {
    return costs.load({segment.first, segment.end, 0}, Borders::kExact).raw_bytes();
  };
  // The table finds what looking at all cuts would, ties broken by the next worst device.
  if (ways_to_cut(costs.units(), costs.stages()) <= kMostEnumerated)
    return balanced_by_table(RawGoal(peak), whole(costs))->cuts;
  return cut_bayesian(costs.units(), costs.stages(), [&](const Cuts& cuts) {
    double worst = 0.0;
    for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
      worst = std::max(worst, peak({cuts[k], cuts[k + 1], k}));
    return worst;
  });
}

}  // namespace

extern const Partitioner kMcapPartitioner{
    "mcap", "least peak of memory: all cuts where they are few, else Bayesian optimization",
    "Dreuning et al., mCAP, Euro-Par 2022; repository henkdr/CAPSlog", Reading::kAsPublished,
    cut_mcap};

}  // namespace spillway::planner
