#include <algorithm>

#include "order/downset_cuts.h"
#include "spillway/planner/partition/cut_solvers.h"
#include "spillway/planner/partition/layer_order.h"

namespace spillway::planner {
namespace {

/// Times closer than that count as equal.
constexpr double kSame = 1e-9;
/// Units beyond which named orders alone take longer than all the cutting.
constexpr std::uint32_t kMostUnits = 20'000;
/// Units beyond which sets of them take too much room.
constexpr std::uint32_t kMostUnitsOfSets = 4'096;

double least_seconds(const PartitionProblem& problem) {
  const auto solved = least_time_cuts(SegmentCosts(problem));
  return solved ? solved->worst : kNever;
}

class OrderSearch {
 public:
  OrderSearch(const PartitionProblem& problem, const UnitGraph& graph)
      : problem_(problem), graph_(graph), costs_(problem, graph) {
    choice_.seconds = choice_.recorded_seconds = least_seconds(problem);
    choice_.bound_seconds = costs_.bound_seconds();
  }

  OrderChoice find(const OrderEffort& effort) {
    const bool may_count = effort.downsets > graph_.units();
    const std::vector<UnitOrder> orders =
        graph_.units() <= kMostUnits ? unit_orders(graph_) : std::vector<UnitOrder>();
    for (std::size_t i = 1; i < orders.size() && !is_at_bound(); ++i)
      consider(orders[i].name, orders[i].units);
    if (!is_at_bound() && may_count && graph_.units() <= kMostUnitsOfSets) search(orders, effort);
    if (is_at_bound()) choice_.is_exact = true;
    if (choice_.is_exact) choice_.bound_seconds = choice_.seconds;
    return std::move(choice_);
  }

 private:
  bool is_at_bound() const { return choice_.seconds <= choice_.bound_seconds * (1.0 + kSame); }

  void consider(std::string_view name, const std::vector<std::uint32_t>& units) {
    PartitionProblem other = problem_;
    LayerOrder layers = graph_.layers_of(units);
    other.chain = reordered(problem_.chain, layers);
    const double seconds = least_seconds(other);
    if (seconds >= choice_.seconds * (1.0 - kSame)) return;
    choice_.name = name;
    choice_.layers = std::move(layers);
    choice_.seconds = seconds;
  }

  /// All downsets where there are few enough, else some: better ways between those may exist.
  void search(const std::vector<UnitOrder>& orders, const OrderEffort& effort) {
    const Downsets sets(graph_, orders, effort.downsets);
    const DownsetSearch found = least_time_downsets(SetCosts(costs_, sets), sets,
                                                    choice_.seconds * (1.0 - kSame), effort.steps);
    choice_.downsets = sets.count();
    if (found.best) {
      std::vector<std::uint32_t> units;
      for (std::size_t k = 0; k + 1 < found.best->sets.size(); ++k)
        for (const std::uint32_t unit : sets.between(found.best->sets[k], found.best->sets[k + 1]))
          units.push_back(unit);
      consider("downsets", units);
    }
    choice_.is_exact = found.is_finished && sets.are_all() &&
                       (!found.best || choice_.seconds <= found.best->seconds * (1.0 + 2 * kSame));
  }

  const PartitionProblem& problem_;
  const UnitGraph& graph_;
  const UnitCosts costs_;
  OrderChoice choice_;
};

}  // namespace

OrderChoice choose_order(const PartitionProblem& problem, const OrderEffort& effort) {
  check(problem);
  const UnitGraph graph(problem.chain);
  if (problem.chain.may_reorder && !graph.has_one_order())
    return OrderSearch(problem, graph).find(effort);
  OrderChoice only;
  only.seconds = only.recorded_seconds = only.bound_seconds = least_seconds(problem);
  only.is_exact = true;
  return only;
}

}  // namespace spillway::planner
