#include <cmath>

#include "plan_assembly.h"
#include "spillway/planner/forward_stash.h"
#include "tape_chain.h"

namespace spillway::planner {
namespace {

/// Operators of forward behind which a segment may end: where one value leads on, if there are such
/// places, and every operator with a stash otherwise.
std::vector<OpIndex> segment_ends(const StepTape& tape, const ForwardStash& stash,
                                  const Recomputation& all) {
  std::vector<OpIndex> ends;
  const auto blocks = chain_of(tape, stash, all, tape.ops.size());
  for (const ChainBlock& block : blocks) ends.push_back(block.last);
  if (ends.size() > 2) return ends;
  ends.clear();
  for (const StashedValue& value : stash.values)
    if (ends.empty() || ends.back() != value.birth) ends.push_back(value.birth);
  return ends;
}

/// Forward is cut into sqrt(n) segments of sqrt(n) blocks; values that a later segment reads stay,
/// the others are recomputed, a segment at a time, when backward comes to it. The last segment
/// stays whole, since backward begins with it. What does not fit then is paged on demand.
StepPlan make_checkpoint_sqrt(const StepTape& tape, const SwapLimits& limits,
                              const StopCheck& /*should_stop*/) {
  const ForwardStash stash = find_stash(tape);
  const Recomputation all(tape);
  const std::vector<OpIndex> ends = segment_ends(tape, stash, all);
  const auto length = std::max<std::size_t>(
      1, static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(ends.size())))));
  std::vector<OpIndex> segments;
  for (std::size_t i = length; i < ends.size(); i += length) segments.push_back(ends[i - 1]);
  std::vector<Drop> drops;
  for (const StashedValue& value : stash.values) {
    const auto end = std::lower_bound(segments.begin(), segments.end(), value.birth);
    // Touched by a later segment of forward, so that leads on: it is the checkpoint.
    const bool is_kept = end == segments.end() || value.after > *end;
    if (!is_kept) drops.push_back({value.value, value.after});
  }
  PlanAssembly assembly(tape, all.replays(drops), limits);
  SwapPlan paged = assembly.paged();
  return std::move(assembly).finish(std::move(paged));
}

}  // namespace

extern const Strategy kCheckpointSqrt{
    "checkpoint-sqrt",
    "recomputes between every sqrt(n)-th value of forward, pages the rest on demand",
    "Chen, Xu, Zhang, Guestrin, Training deep nets with sublinear memory cost, arXiv 1604.06174, "
    "2016",
    make_checkpoint_sqrt};

}  // namespace spillway::planner
