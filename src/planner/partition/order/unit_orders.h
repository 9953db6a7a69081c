#pragma once

#include <string_view>
#include <vector>

#include "order/unit_graph.h"

namespace spillway::planner {

/// Units by place.
struct UnitOrder {
  std::string_view name;
  std::vector<std::uint32_t> units;
};

/// Orders in which each unit comes behind its inputs, the recorded one first, no two alike:
///
/// - `depth-first`: a branch to its end before the next one begins,
/// - `breadth-first`: branches in step,
/// - `from-the-end`: depth-first against the edges: branches the other way round, and what is read
///   late just before that,
/// - `narrow`: next what leaves the fewest bytes between what has run and what has not.
std::vector<UnitOrder> unit_orders(const UnitGraph& graph);

}  // namespace spillway::planner
