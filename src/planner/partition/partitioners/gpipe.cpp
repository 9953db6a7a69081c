#include <algorithm>
#include <vector>

#include "segment_goal.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

/// Least sum of squares of stage times, which is the least variance. The best begin of a last stage
/// does not fall with its end, so each half of the ends looks at its part of the begins alone.
class LeastVariance {
 public:
  explicit LeastVariance(const SegmentCosts& costs) : costs_(costs) {}

  Cuts run() {
    const std::uint32_t units = costs_.units();
    const std::uint32_t stages = costs_.stages();
    sums_.assign(units + 1, kNever);
    sums_[0] = 0.0;
    begins_.assign(stages, std::vector<std::uint32_t>(units + 1, 0));
    for (std::uint32_t k = 0; k < stages; ++k) {
      next_.assign(units + 1, kNever);
      solve(k, k + 1, units - (stages - 1 - k), k, units - (stages - k));
      sums_.swap(next_);
    }
    Cuts cuts(stages + 1, units);
    for (std::uint32_t k = stages; k-- > 0;) cuts[k] = begins_[k][cuts[k + 1]];
    return cuts;
  }

 private:
  /// Ends from..to of stage k, whose best begins lie in low..high.
  void solve(std::uint32_t k, std::uint32_t from, std::uint32_t to, std::uint32_t low,
             std::uint32_t high) {
    if (from > to) return;
    const std::uint32_t end = from + (to - from) / 2;
    std::uint32_t best = low;
    for (std::uint32_t begin = low; begin <= std::min(high, end - 1); ++begin) {
      const double seconds = costs_.layer_seconds(begin, end);
      const double sum = sums_[begin] + seconds * seconds;
      if (sum < next_[end]) next_[end] = sum, best = begin;
    }
    begins_[k][end] = best;
    if (end > from) solve(k, from, end - 1, low, best);
    solve(k, end + 1, to, best, high);
  }

  const SegmentCosts& costs_;
  std::vector<double> sums_, next_;
  std::vector<std::vector<std::uint32_t>> begins_;
};

std::optional<Cuts> cut_gpipe(const SegmentCosts& costs) { return LeastVariance(costs).run(); }

}  // namespace

extern const Partitioner kGpipe{
    "gpipe", "least variance of the times of stages",
    "Huang et al., GPipe, NeurIPS 2019, arXiv 1811.06965; that its heuristic aims at the variance "
    "of costs we did not confirm",
    Reading::kInferred, cut_gpipe};

}  // namespace spillway::partition
