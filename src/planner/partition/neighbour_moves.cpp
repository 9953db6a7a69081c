#include "neighbour_moves.h"

#include <algorithm>
#include "plain_figures.h"

namespace spillway::partition {

double reduced_score(const SegmentCosts& costs, Segment segment, double device) {
  constexpr double kDoesNotFit = 1e30;  // More than any seconds.
  const double seconds = costs.least_seconds(segment, device);
  if (seconds < kNever) return seconds;
  // Not infinite: a move that makes it fit a little better has to show.
  return kDoesNotFit * (1.0 + costs.load(segment).raw_bytes() / device);
}

double reduced_score(const SegmentCosts& costs, Segment segment) {
  return reduced_score(costs, segment, costs.device_bytes(segment.stage));
}

double worst_score(const SegmentCosts& costs, const Cuts& cuts) {
  double worst = 0.0;
  for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
    worst = std::max(worst, reduced_score(costs, {cuts[k], cuts[k + 1], k}));
  return worst;
}

Cuts moved_by_neighbours(const SegmentCosts& costs, Cuts cuts,
                         const std::function<double(Segment)>& score, std::uint32_t most_moves) {
  const std::uint32_t stages = costs.stages();
  std::vector<double> scores;
  for (std::uint32_t k = 0; k < stages; ++k) scores.push_back(score({cuts[k], cuts[k + 1], k}));
  for (std::uint32_t move = 0; move < most_moves; ++move) {
    const auto worst =
        static_cast<std::uint32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
    double best = scores[worst];
    std::uint32_t best_cut = 0;
    double best_left = 0.0;
    double best_right = 0.0;
    // It has nothing to give away.
    if (cuts[worst + 1] - cuts[worst] == 1) break;
    // Its first unit to the left, or its last one to the right.
    for (const std::uint32_t cut : {worst, worst + 1}) {
      if (cut == 0 || cut == stages) continue;
      const std::uint32_t to = cut == worst ? cuts[cut] + 1 : cuts[cut] - 1;
      const double left = score({cuts[cut - 1], to, cut - 1});
      const double right = score({to, cuts[cut + 1], cut});
      if (std::max(left, right) >= best) continue;
      best = std::max(left, right);
      best_cut = cut;
      best_left = left;
      best_right = right;
    }
    if (best_cut == 0) break;
    cuts[best_cut] += best_cut == worst ? 1 : -1;
    scores[best_cut - 1] = best_left;
    scores[best_cut] = best_right;
  }
  return cuts;
}

Cuts without_empty_stages(Cuts cuts) {
  const std::size_t stages = cuts.size() - 1;
  for (std::size_t k = 1; k < stages; ++k) cuts[k] = std::max(cuts[k], cuts[k - 1] + 1);
  for (std::size_t k = stages; k-- > 1;) cuts[k] = std::min(cuts[k], cuts[k + 1] - 1);
  return cuts;
}

}  // namespace spillway::partition
