#include "spillway/pipeline/ownership/rank_set.h"

#include <algorithm>

#include "spillway/base/assert.h"

namespace spillway::pipeline {

bool RankSet::contains(Rank rank) const {
  return is_all_ || std::binary_search(ranks_.begin(), ranks_.end(), rank);
}

void RankSet::insert(Rank rank) {
  if (is_all_) return;
  const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  if (at == ranks_.end() || *at != rank) ranks_.insert(at, rank);
}

Rank RankSet::first() const {
  SPILLWAY_ASSERT(!is_empty());
  return is_all_ ? Rank(0) : ranks_.front();
}

std::vector<Rank> RankSet::list(std::uint32_t ranks) const {
  if (!is_all_) return ranks_;
  std::vector<Rank> all;
  for (std::uint32_t i = 0; i < ranks; ++i) all.emplace_back(i);
  return all;
}

}  // namespace spillway::pipeline
