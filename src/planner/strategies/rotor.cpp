#include <algorithm>

#include "block_costs.h"
#include "plan_assembly.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

constexpr std::size_t kMostBlocks = 96;
// Steps of the dynamic program: slots * blocks^3 / 6.
constexpr std::size_t kMostWork = 60'000'000;
constexpr std::size_t kFewestSlots = 60;
// Where no schedule fits, it tries with so much more memory.
constexpr double kMoreMemory = 1.1;

std::uint32_t slots_for(std::size_t blocks, std::uint32_t budget) {
  const std::size_t affordable = kMostWork * 6 / (blocks * blocks * blocks);
  return static_cast<std::uint32_t>(std::min<std::size_t>(
      budget, std::max(kFewestSlots, std::min<std::size_t>(affordable, 2000))));
}

std::vector<Replay> replays_of(const ChainSchedule& schedule, const BlockCosts& costs,
                               const std::vector<ChainBlock>& chain) {
  std::vector<Replay> replays;
  for (const BlockRerun& rerun : schedule.reruns)
    for (const OpIndex op : costs.replay(rerun.block, rerun.wanted).ops)
      replays.push_back({chain[rerun.before].backward, op});
  return replays;
}

/// Optimal persistent recomputation of a chain. Where nothing fits into the budget, the schedule of
/// least memory, and the rest is paged on demand.
StepPlan make_rotor(const StepTape& tape, const SwapLimits& limits, const StopCheck& should_stop) {
  const ForwardStash stash = find_stash(tape);
  const Recomputation all(tape);
  const std::vector<ChainBlock> chain = chain_of(tape, stash, all, kMostBlocks);
  if (chain.size() < 2)
    throw PlanError(
        "strategy rotor needs a chain, and nowhere among the {} operators of forward does a single "
        "value lead on that can be recomputed: use dtr or spillway",
        stash.forward_end + 1);
  const BlockCosts costs(tape, stash, chain);
  const std::uint32_t most = live_peak(tape);
  std::vector<Replay> replays;
  double pages = limits.budget_pages;
  for (;; pages = std::min<double>(most, pages * kMoreMemory + 1.0)) {
    const auto memory = static_cast<std::uint32_t>(pages);
    const std::uint32_t slots = slots_for(chain.size(), memory);
    const std::uint32_t pages_per_slot = (memory + slots - 1) / slots;
    const auto schedule = cheapest_reruns(costs.in_slots(pages_per_slot), memory / pages_per_slot);
    if (schedule) replays = replays_of(*schedule, costs, chain);
    if (schedule || memory >= most || is_told(should_stop)) break;
  }
  PlanAssembly assembly(tape, std::move(replays), limits);
  SwapPlan paged = assembly.paged();
  return std::move(assembly).finish(std::move(paged));
}

}  // namespace

extern const Strategy kRotor{
    "rotor", "recomputes a chain by the optimal persistent schedule, pages the rest on demand",
    "Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, Optimal checkpointing for heterogeneous "
    "chains, INRIA RR-9302, arXiv 1911.13214",
    make_rotor};

}  // namespace spillway::planner
