// The best attempts of a tiny step: each with swaps of its own, then with every moment of them.

#include <algorithm>
#include <utility>

#include "moment_search.h"
#include "plan_assembly.h"
#include "step_search.h"

namespace spillway::planner {
namespace {

constexpr std::size_t kFinalists = 24;
// Sets of swaps that are tried for each, and variants of all together whose moments are searched.
constexpr std::size_t kMostSets = 600;
constexpr std::size_t kVariants = 96;
// And of the best of these the moments of all pairs of swaps.
constexpr std::size_t kPairVariants = 16;

}  // namespace

void StepSearch::keep_finalist(const Attempt& attempt) {
  if (tape_.ops.size() > kTinyOps) return;
  for (const Attempt& known : finalists_) {
    const bool is_known = known.estimate().step_seconds == attempt.estimate().step_seconds &&
                          known.steps.op_of == attempt.steps.op_of;
    if (is_known) return;
  }
  const auto place = std::find_if(finalists_.begin(), finalists_.end(), [&](const Attempt& known) {
    return is_better(attempt.estimate(), known.estimate(), 1.0);
  });
  finalists_.insert(place, attempt);
  if (finalists_.size() > kFinalists) finalists_.pop_back();
}

/// One style swaps for all sets of drops while they are searched; the best deserve their own.
void StepSearch::refine_finalists() {
  std::vector<std::vector<Fate>> sets;
  for (const Attempt& finalist : finalists_) sets.push_back(finalist.fates);
  for (std::vector<Fate>& fates : sets) {
    if (is_good_enough() || is_stopped()) return;
    offer(best_attempt(std::move(fates), limits_.refinement_ops), 1.0);
  }
}

/// Styles set the moments of all swaps alike, and price whole sets of them: both cost some per cent
/// where each swap counts.
void StepSearch::try_moments() {
  struct Variant {
    std::size_t finalist;
    SwapPlan plan;
  };
  std::vector<Attempt> finalists = std::exchange(finalists_, {});
  std::vector<PlanAssembly> assemblies;
  std::vector<Variant> variants;
  assemblies.reserve(finalists.size());
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    if (is_good_enough() || is_stopped()) return;
    const PlanAssembly& assembly = assemblies.emplace_back(tape_, finalists[i].replays, limits_);
    for (SwapPlan& plan : best_sets(assembly, std::move(finalists[i].swaps.plan),
                                    limits_.budget_pages, kMostSets, kVariants))
      variants.push_back({i, std::move(plan)});
  }
  const auto sort_by_time = [](std::vector<Variant>& all) {
    std::stable_sort(all.begin(), all.end(), [](const Variant& a, const Variant& b) {
      return is_better(a.plan.estimate, b.plan.estimate, 1.0);
    });
  };
  sort_by_time(variants);
  const auto improve = [&](Variant& each, MomentEffort effort) {
    Attempt& finalist = finalists[each.finalist];
    finalist.swaps.plan = with_best_moments(assemblies[each.finalist], each.plan, effort);
    offer(finalist, 1.0);
    each.plan = finalist.swaps.plan;
  };
  std::vector<Variant> tried;
  std::vector<bool> has_had_one(finalists.size(), false);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    Variant& each = variants[i];
    // The best of all, and the best of each finalist.
    if (i >= kVariants && has_had_one[each.finalist]) continue;
    has_had_one[each.finalist] = true;
    if (is_good_enough() || is_stopped()) return;
    improve(each, MomentEffort::kSingles);
    tried.push_back(std::move(each));
  }
  sort_by_time(tried);
  tried.erase(std::unique(tried.begin(), tried.end(),
                          [](const Variant& a, const Variant& b) {
                            return a.finalist == b.finalist && has_same_moments(a.plan, b.plan);
                          }),
              tried.end());
  if (tried.size() > kPairVariants) tried.resize(kPairVariants);
  for (Variant& each : tried) {
    if (is_good_enough() || is_stopped()) return;
    improve(each, MomentEffort::kPairs);
  }
  finalists_.clear();
}

}  // namespace spillway::planner
