#include "gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spillway::planner {
namespace {

/// Of the diagonal: values are rounded by whole layers.
constexpr double kNoise = 1e-3;
/// Of the kernel, as a share of the largest distance of two points in a unit cube.
constexpr double kWidth = 0.1;

double near_at(double distance, std::size_t dimensions) {
  const double width = kWidth * kWidth * std::max<double>(1.0, static_cast<double>(dimensions));
  return std::exp(-0.5 * distance / width);
}

}  // namespace

double GaussianProcess::kernel(const std::vector<double>& one,
                               const std::vector<double>& other) const {
  double distance = 0.0;
  for (std::size_t i = 0; i < one.size(); ++i)
    distance += (one[i] - other[i]) * (one[i] - other[i]);
  return near_at(distance, one.size());
}

GaussianProcess::Figures GaussianProcess::kernels(const std::vector<double>& seen,
                                                  const std::vector<Figures>& others) const {
  Figures result{};
  for (std::size_t i = 0; i < seen.size(); ++i)
    for (std::size_t each = 0; each < kTogether; ++each)
      result[each] += (seen[i] - others[i][each]) * (seen[i] - others[i][each]);
  for (double& each : result) each = near_at(each, seen.size());
  return result;
}

std::vector<double> GaussianProcess::forward(std::vector<double> right) const {
  for (std::size_t i = 0; i < right.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) right[i] -= factor_[i][k] * right[k];
    right[i] /= factor_[i][i];
  }
  return right;
}

void GaussianProcess::add(std::vector<double> point, double value) {
  std::vector<double> near;
  for (const auto& each : points_) near.push_back(kernel(each, point));
  std::vector<double> row = forward(std::move(near));
  const double square = std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
  row.push_back(std::sqrt(std::max(kNoise, 1.0 + kNoise - square)));
  factor_.push_back(std::move(row));
  points_.push_back(std::move(point));
  values_.push_back(value);
  const auto count = static_cast<double>(values_.size());
  mean_ = std::accumulate(values_.begin(), values_.end(), 0.0) / count;
  double variance = 0.0;
  for (const double each : values_) variance += (each - mean_) * (each - mean_) / count;
  deviation_ = variance > 0.0 ? std::sqrt(variance) : 1.0;
  std::vector<double> normalised;
  for (const double each : values_) normalised.push_back((each - mean_) / deviation_);
  weights_ = forward(std::move(normalised));
}

std::vector<double> GaussianProcess::expected_gains(std::span<const std::vector<double>> points,
                                                    double least) const {
  std::vector<double> gains;
  for (std::size_t first = 0; first < points.size(); first += kTogether)
    add_gains(points.subspan(first, std::min(kTogether, points.size() - first)), least, gains);
  return gains;
}

void GaussianProcess::add_gains(std::span<const std::vector<double>> points, double least,
                                std::vector<double>& gains) const {
  std::vector<Figures> coordinates(points[0].size(), Figures{});
  for (std::size_t i = 0; i < coordinates.size(); ++i)
    for (std::size_t each = 0; each < points.size(); ++each) coordinates[i][each] = points[each][i];
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

}  // namespace spillway::planner
