#pragma once

#include <vector>

#include "ranked_sums.h"
#include "spillway/planner/partition/model_chain.h"

namespace spillway::planner {

/// Steps from the layer as it is to its points on the lower convex hull of (seconds, stash), most
/// bytes per second first: `a` are seconds, `b` the bytes saved. Fractions of them are the best
/// that fractions of points can do.
std::vector<SumPair> recompute_items(const ModelLayer& layer);

/// The points that no other one beats in both, by seconds, the layer as it is among them: seconds
/// in `a`, bytes saved in `b`.
std::vector<SumPair> useful_points(const ModelLayer& layer);

/// Those of them that lie on the lower convex hull, behind (0, 0).
std::vector<SumPair> hull_of(const std::vector<SumPair>& useful);

}  // namespace spillway::planner
