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

}  // namespace

double GaussianProcess::kernel(const std::vector<double>& one,
                               const std::vector<double>& other) const {
  double distance = 0.0;
  for (std::size_t i = 0; i < one.size(); ++i)
    distance += (one[i] - other[i]) * (one[i] - other[i]);
  const double width = kWidth * kWidth * std::max<double>(1.0, static_cast<double>(one.size()));
  return std::exp(-0.5 * distance / width);
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

double GaussianProcess::expected_gain(const std::vector<double>& point, double least) const {
  std::vector<double> near;
  for (const auto& each : points_) near.push_back(kernel(each, point));
  const std::vector<double> row = forward(std::move(near));
  const double expected =
      mean_ + deviation_ * std::inner_product(row.begin(), row.end(), weights_.begin(), 0.0);
  const double square = std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
  const double spread = deviation_ * std::sqrt(std::max(1e-12, 1.0 - square));
  const double z = (least - expected) / spread;
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2.0 * 3.14159265358979323846);
  return (least - expected) * 0.5 * std::erfc(-z / std::sqrt(2.0)) + spread * density;
}

}  // namespace spillway::planner
