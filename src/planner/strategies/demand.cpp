#include "plan_assembly.h"

namespace spillway::planner {
namespace {

/// No plan: the event model reads on demand and evicts what was used longest ago. It knows next
/// uses only, so they are told falsely: the longer ago a touch, the farther. A survivor's last
/// touch counts as one step older, for it must look older than all that the next step touches.
StepPlan make_demand(const StepTape& tape, const SwapLimits& limits,
                     const StopCheck& /*should_stop*/) {
  PlanAssembly assembly(tape, {}, limits);
  SwapPlan paged = assembly.paged();
  const auto op_count = static_cast<std::uint32_t>(tape.ops.size());
  std::vector<std::uint32_t*> last(tape.values.size(), nullptr);
  // Behind operator i it is i; with this distance the next use lies at 3 * op_count - i.
  const auto distance = [&](OpIndex op) { return 3 * op_count - 2 * op; };
  const auto touch = [&](ValueIndex value, OpIndex op, std::uint32_t& told) {
    told = distance(op);
    last[value] = &told;
  };
  for (ValueIndex i = 0; i < tape.values.size(); ++i)
    if (tape.values[i].birth == profile::kCarriedIn) touch(i, 0, paged.birth_distance[i]);
  for (OpIndex op = 0; op < op_count; ++op) {
    std::uint32_t i = tape.ops[op].first_use;
    for (const auto& use : touches_of(tape, op)) touch(use.value, op, paged.use_distance[i++]);
    for (const ValueIndex born : paged.births.of(op)) touch(born, op, paged.birth_distance[born]);
  }
  for (ValueIndex i = 0; i < tape.values.size(); ++i)
    if (tape.values[i].death == profile::kSurvives && last[i]) *last[i] += op_count;
  return std::move(assembly).finish(std::move(paged));
}

}  // namespace

extern const Strategy kDemand{
    "demand", "no plan: reads on demand, evicts what was used longest ago",
    "LRU paging, for instance in Denning, Virtual memory, ACM Computing Surveys "
    "2(3), 1970",
    make_demand};

}  // namespace spillway::planner
