#include "spillway/planner/partition/partitioners.h"

#include <array>
#include <vector>

#include "spillway/base/named_values.h"

namespace spillway::planner {

Cuts Partitioner::cut(const SegmentCosts& costs) const {
  Cuts cuts = make(costs);
  check(costs, cuts);
  return cuts;
}

const Partitioner& partitioner_named(std::string_view name) {
  std::vector<Named<const Partitioner*>> named;
  for (const Partitioner& each : partitioners()) named.push_back({each.name, &each});
  return *value_named(name, named, "partitioner");
}

std::string_view to_string(Reading reading) {
  constexpr std::array<Named<Reading>, 3> kNames{{{"ours", Reading::kOurs},
                                                  {"as published", Reading::kAsPublished},
                                                  {"inferred", Reading::kInferred}}};
  return name_in(kNames, reading);
}

}  // namespace spillway::planner
