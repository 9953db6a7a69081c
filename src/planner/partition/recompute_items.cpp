#include "recompute_items.h"

#include <algorithm>

namespace spillway::planner {

std::vector<SumPair> useful_points(const ModelLayer& layer) {
  const auto stash = static_cast<double>(layer.stash.count());
  std::vector<SumPair> all{{0.0, 0.0}};
  for (const RecomputePoint& point : layer.recompute)
    all.push_back({point.seconds, stash - static_cast<double>(point.stash.count())});
  std::stable_sort(all.begin(), all.end(), [](const SumPair& one, const SumPair& other) {
    return one.a != other.a ? one.a < other.a : one.b > other.b;
  });
  std::vector<SumPair> useful;
  for (const SumPair& point : all)
    if (useful.empty() || point.b > useful.back().b) useful.push_back(point);
  return useful;
}

std::vector<SumPair> hull_of(const std::vector<SumPair>& useful) {
  std::vector<SumPair> hull{{0.0, 0.0}};
  for (const SumPair& point : useful) {
    if (point.b <= 0.0) continue;
    const auto is_below_line = [&] {
      const SumPair& before = hull[hull.size() - 2];
      const SumPair last = hull.back() - before;
      const SumPair next = point - before;
      return last.b * next.a <= next.b * last.a;
    };
    while (hull.size() > 1 && is_below_line()) hull.pop_back();
    hull.push_back(point);
  }
  return hull;
}

std::vector<SumPair> recompute_items(const ModelLayer& layer) {
  const std::vector<SumPair> hull = hull_of(useful_points(layer));
  std::vector<SumPair> items;
  for (std::size_t i = 1; i < hull.size(); ++i) items.push_back(hull[i] - hull[i - 1]);
  return items;
}

}  // namespace spillway::planner
