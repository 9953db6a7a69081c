#include <limits>

#include "neighbour_moves.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

bool fits(const SegmentCosts& costs, Segment segment) {
  return costs.load(segment).raw_bytes() <= costs.device_bytes(segment.stage);
}

/// Equal stages first. Those over their memory are adjusted by swaps and recomputation; then one
/// unit after the other leaves the slowest adjusted stage for the fastest that needs no adjustment
/// and still fits, passing on through the stages between, as long as the predicted time falls.
std::optional<Cuts> cut_obscura(const SegmentCosts& costs) {
  Cuts cuts = partitioner_named("even").cut(costs);
  double worst = worst_score(costs, cuts);
  for (std::uint32_t move = 0; move < costs.units(); ++move) {
    std::uint32_t slowest = costs.stages();
    std::uint32_t fastest = costs.stages();
    double most = 0.0;
    double least = std::numeric_limits<double>::infinity();
    for (std::uint32_t k = 0; k < costs.stages(); ++k) {
      const Segment segment{cuts[k], cuts[k + 1], k};
      const double score = reduced_score(costs, segment);
      if (!fits(costs, segment) && score > most) most = score, slowest = k;
    }
    for (std::uint32_t k = 0; k < costs.stages() && slowest < costs.stages(); ++k) {
      Segment with_one_more{cuts[k], cuts[k + 1], k};
      if (k == slowest || !fits(costs, with_one_more)) continue;
      const double score = reduced_score(costs, with_one_more);
      k < slowest ? ++with_one_more.end : --with_one_more.first;
      if (fits(costs, with_one_more) && score < least) least = score, fastest = k;
    }
    if (slowest == costs.stages() || fastest == costs.stages()) break;
    Cuts moved = cuts;
    if (slowest < fastest) {
      for (std::uint32_t k = slowest + 1; k <= fastest; ++k) --moved[k];
    } else {
      for (std::uint32_t k = fastest + 1; k <= slowest; ++k) ++moved[k];
    }
    if (cuts[slowest + 1] - cuts[slowest] == 1) break;
    const double now = worst_score(costs, moved);
    if (now >= worst) break;
    worst = now;
    cuts = std::move(moved);
  }
  return cuts;
}

}  // namespace

extern const Partitioner kObscura{
    "obscura", "equal stages, reduced; then layers leave the slowest reduced one",
    "Obscura, USENIX ATC 2025; for layers of any kind, where the paper has equal ones",
    Reading::kInferred, cut_obscura};

}  // namespace spillway::partition
