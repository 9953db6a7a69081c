#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "bottleneck_search.h"
#include "predicted_peaks.h"
#include "segment_goal.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

/// Of the diagonal: values are rounded by whole layers.
constexpr double kNoise = 1e-3;
/// Of the kernel, as a share of the largest distance of two points in a unit cube.
constexpr double kWidth = 0.1;

double near_at(double distance, std::size_t dimensions) {
  const double width = kWidth * kWidth * std::max<double>(1.0, static_cast<double>(dimensions));
  return std::exp(-0.5 * distance / width);
}

/// Values seen at points, and what they let expect elsewhere: a Gaussian process with a squared
/// exponential kernel, a tenth of the diagonal of a unit cube wide. Each point costs O(points^2).
class GaussianProcess {
 public:
  void add(std::vector<double> point, double value) {
    // One more row of the factor; those of earlier points stay as they are.
    std::vector<double> near;
    for (const auto& each : points_) near.push_back(kernel(each, point));
    std::vector<double> row = forward(std::move(near));
    const double square = std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
    // Equal points would make the factor singular, were it not for the noise on the diagonal.
    row.push_back(std::sqrt(std::max(kNoise, 1.0 + kNoise - square)));
    factor_.push_back(std::move(row));
    points_.push_back(std::move(point));
    values_.push_back(value);
    const auto count = static_cast<double>(values_.size());
    mean_ = std::accumulate(values_.begin(), values_.end(), 0.0) / count;
    double variance = 0.0;
    for (const double each : values_) variance += (each - mean_) * (each - mean_) / count;
    deviation_ = variance > 0.0 ? std::sqrt(variance) : 1.0;
    // All of them anew, as each value moves the mean and the deviation; the factor knows points
    // alone.
    std::vector<double> normalised;
    for (const double each : values_) normalised.push_back((each - mean_) / deviation_);
    weights_ = forward(std::move(normalised));
  }

  /// How much below `least` the value at each point is expected to be, counting 0 where it is
  /// above.
  std::vector<double> expected_gains(std::span<const std::vector<double>> points,
                                     double least) const {
    std::vector<double> gains;
    for (std::size_t first = 0; first < points.size(); first += kTogether)
      add_gains(points.subspan(first, std::min(kTogether, points.size() - first)), least, gains);
    return gains;
  }

 private:
  /// Points that are looked at together, so that the machine works on several figures at once.
  static constexpr std::size_t kTogether = 8;
  using Figures = std::array<double, kTogether>;  ///< One of each point.

  double kernel(const std::vector<double>& one, const std::vector<double>& other) const {
    double distance = 0.0;
    for (std::size_t i = 0; i < one.size(); ++i)
      distance += (one[i] - other[i]) * (one[i] - other[i]);
    return near_at(distance, one.size());
  }

  /// Returns the kernel of a point that was seen and each of others, given by their coordinates.
  Figures kernels(const std::vector<double>& seen, const std::vector<Figures>& others) const {
    Figures result{};
    for (std::size_t i = 0; i < seen.size(); ++i)
      for (std::size_t each = 0; each < kTogether; ++each)
        result[each] += (seen[i] - others[i][each]) * (seen[i] - others[i][each]);
    for (double& each : result) each = near_at(each, seen.size());
    return result;
  }

  void add_gains(std::span<const std::vector<double>> points, double least,
                 std::vector<double>& gains) const {
    std::vector<Figures> coordinates(points[0].size(), Figures{});
    for (std::size_t i = 0; i < coordinates.size(); ++i)
      for (std::size_t each = 0; each < points.size(); ++each)
        coordinates[i][each] = points[each][i];
    // `forward`, and what comes of its rows, for all of them at once.
    std::vector<Figures> rows;
    Figures expected{};
    Figures squares{};
    for (std::size_t i = 0; i < points_.size(); ++i) {
      Figures row = kernels(points_[i], coordinates);
      for (std::size_t k = 0; k < i; ++k)
        for (std::size_t each = 0; each < kTogether; ++each)
          row[each] -= factor_[i][k] * rows[k][each];
      for (std::size_t each = 0; each < kTogether; ++each) {
        row[each] /= factor_[i][i];
        expected[each] += row[each] * weights_[i];
        squares[each] += row[each] * row[each];
      }
      rows.push_back(row);
    }
    for (std::size_t each = 0; each < points.size(); ++each) {
      const double mean = mean_ + deviation_ * expected[each];
      const double spread = deviation_ * std::sqrt(std::max(1e-12, 1.0 - squares[each]));
      const double z = (least - mean) / spread;
      const double density = std::exp(-0.5 * z * z) / std::sqrt(2.0 * 3.14159265358979323846);
      gains.push_back((least - mean) * 0.5 * std::erfc(-z / std::sqrt(2.0)) + spread * density);
    }
  }

  /// The rows of the triangular factor applied to `right`, from the first one on.
  std::vector<double> forward(std::vector<double> right) const {
    for (std::size_t i = 0; i < right.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) right[i] -= factor_[i][k] * right[k];
      right[i] /= factor_[i][i];
    }
    return right;
  }

  std::vector<std::vector<double>> points_;
  std::vector<double> values_;
  std::vector<std::vector<double>> factor_;  ///< Cholesky's, lower triangle by rows.
  std::vector<double> weights_;              ///< `factor_` applied to the normalised values.
  double mean_ = 0.0;
  double deviation_ = 1.0;
};

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

std::optional<Cuts> cut_mcap(const SegmentCosts& costs) {
  const std::uint32_t stages = costs.stages();
  // Their profiling runs have windows of so many units, where there are more than two devices.
  const std::uint32_t window =
      stages > 2 ? (std::max(2U, costs.units()) - 2) / (stages - 2) + 1 : 1;
  const PredictedPeaks peaks(costs, window);
  const RawGoal peak([&](Segment segment) { return peaks.of(segment.first, segment.end); });
  // The table finds what looking at all cuts would, ties broken by the next worst device.
  if (ways_to_cut(costs.units(), stages) <= kMostEnumerated &&
      table_steps(whole(costs)) <= kMostTableSteps)
    return balanced_by_table(peak, whole(costs))->cuts;
  return cut_bayesian(costs.units(), stages,
                      [&](const Cuts& cuts) { return bottleneck_of(peak, whole(costs), cuts); });
}

}  // namespace

extern const Partitioner kMcap{
    "mcap",
    "least peak of memory: all cuts where they are few, else Bayesian optimization",
    "Dreuning et al., mCAP, Euro-Par 2022; repository henkdr/CAPSlog, whose scikit-optimize draws "
    "other numbers and chooses its next point by more than the expected gain",
    Reading::kInferred,
    cut_mcap,
    /*sees_first_stage_alone=*/true,
    /*draws_cuts=*/true};

}  // namespace spillway::partition
