#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace spillway::planner {

/// Values seen at points, and what they let expect elsewhere: a Gaussian process with a squared
/// exponential kernel, a tenth of the diagonal of a unit cube wide. Each point costs O(points^2).
class GaussianProcess {
 public:
  void add(std::vector<double> point, double value);

  /// How much below `least` the value at each point is expected to be, counting 0 where it is
  /// above.
  std::vector<double> expected_gains(std::span<const std::vector<double>> points,
                                     double least) const;

 private:
  /// Points that are looked at together, so that the machine works on several figures at once.
  static constexpr std::size_t kTogether = 8;
  using Figures = std::array<double, kTogether>;  ///< One of each point.

  double kernel(const std::vector<double>& one, const std::vector<double>& other) const;
  /// Returns the kernel of a point that was seen and each of others, given by their coordinates.
  Figures kernels(const std::vector<double>& seen, const std::vector<Figures>& others) const;
  void add_gains(std::span<const std::vector<double>> points, double least,
                 std::vector<double>& gains) const;
  /// The rows of the triangular factor applied to `right`, from the first one on.
  std::vector<double> forward(std::vector<double> right) const;

  std::vector<std::vector<double>> points_;
  std::vector<double> values_;
  std::vector<std::vector<double>> factor_;  ///< Cholesky's, lower triangle by rows.
  std::vector<double> weights_;              ///< `factor_` applied to the normalised values.
  double mean_ = 0.0;
  double deviation_ = 1.0;
};

}  // namespace spillway::planner
