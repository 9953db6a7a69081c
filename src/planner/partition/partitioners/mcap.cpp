#include <algorithm>
#include <cmath>
#include <random>

#include "balanced_cuts.h"
#include "gaussian_process.h"
#include "predicted_peaks.h"
#include "raw_goal.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::planner {
namespace {

constexpr double kMostEnumerated = 2e5;
constexpr int kFirstPoints = 30;
constexpr int kIterations = 100;
constexpr std::uint32_t kMostCandidates = 200;
/// Coordinates of all candidates of an iteration, so that thousands of stages do not take minutes.
constexpr std::uint32_t kMostCoordinates = 200'000;
constexpr std::uint64_t kSeed = 20220822;

/// Ways to cut units into stages, or more than `kMostEnumerated`.
double ways_to_cut(std::uint32_t units, std::uint32_t stages) {
  const std::uint32_t chosen = std::min(stages - 1, units - stages);
  double ways = 1.0;
  for (std::uint32_t k = 1; k <= chosen && ways <= kMostEnumerated; ++k)
    ways *= static_cast<double>(units - k) / k;
  return ways;
}

/// Each coordinate is a stage's share of the units that are left, without one for each behind.
Cuts cuts_at(const std::vector<double>& point, std::uint32_t units) {
  const auto stages = static_cast<std::uint32_t>(point.size() + 1);
  Cuts cuts{0};
  for (std::uint32_t k = 0; k + 1 < stages; ++k) {
    const std::uint32_t most = units - cuts.back() - (stages - 1 - k);
    const auto taken = static_cast<std::uint32_t>(std::nearbyint(point[k] * most));
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
  const auto any_point = [&] {
    std::vector<double> point;  // Whole per cents from 1 to 100.
    for (std::uint32_t k = 0; k + 1 < stages; ++k)
      point.push_back(static_cast<double>(1 + random() % 100) / 100.0);
    return point;
  };
  const std::uint32_t candidates = std::clamp(kMostCoordinates / stages, 1U, kMostCandidates);
  GaussianProcess process;
  Cuts best;
  double least = kNever;
  for (int i = 0; i < kFirstPoints + kIterations; ++i) {
    std::vector<double> point = any_point();
    if (i >= kFirstPoints) {
      std::vector<std::vector<double>> others{std::move(point)};
      while (others.size() < candidates) others.push_back(any_point());
      const std::vector<double> gains = process.expected_gains(others, least);
      const auto most = std::max_element(gains.begin(), gains.end());
      point = std::move(others[static_cast<std::size_t>(most - gains.begin())]);
    }
    Cuts cuts = cuts_at(point, units);
    const double peak = peak_of(cuts);
    if (peak < least) least = peak, best = std::move(cuts);
    process.add(std::move(point), peak);
  }
  return best;
}

Cuts cut_mcap(const SegmentCosts& costs) {
  const std::uint32_t stages = costs.stages();
  // Their profiling runs have windows of so many units, where there are more than two devices.
  const std::uint32_t window =
      stages > 2 ? (std::max(2U, costs.units()) - 2) / (stages - 2) + 1 : 1;
  const PredictedPeaks peaks(costs, window);
  const auto peak = [&](Segment segment) { return peaks.of(segment.first, segment.end); };
  // The table finds what looking at all cuts would, ties broken by the next worst device.
  if (ways_to_cut(costs.units(), stages) <= kMostEnumerated &&
      table_steps(whole(costs)) <= kMostTableSteps)
    return balanced_by_table(RawGoal(peak), whole(costs))->cuts;
  return cut_bayesian(costs.units(), stages, [&](const Cuts& cuts) {
    double worst = 0.0;
    for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
      worst = std::max(worst, peak({cuts[k], cuts[k + 1], k}));
    return worst;
  });
}

}  // namespace

extern const Partitioner kMcapPartitioner{
    "mcap",
    "least peak of memory: all cuts where they are few, else Bayesian optimization",
    "Dreuning et al., mCAP, Euro-Par 2022; repository henkdr/CAPSlog, whose scikit-optimize draws "
    "other numbers and chooses its next point by more than the expected gain",
    Reading::kInferred,
    cut_mcap,
    /*sees_first_stage_alone=*/true};

}  // namespace spillway::planner
