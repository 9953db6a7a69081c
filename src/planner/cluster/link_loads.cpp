#include "link_loads.h"

#include <algorithm>

namespace spillway::planner {

std::vector<LinkClassLoad> loads_of(const ClusterLinks& links, std::span<const std::uint32_t> nodes,
                                    double seconds, std::span<const double> carried) {
  std::vector<LinkClassLoad> loads(kLinkClasses);
  std::vector<double> capacity(kLinkClasses, 0.0);
  for (std::uint32_t link = 0; link < links.size(); ++link) {
    // What the others have is no reserve of the job.
    const NodeRange behind = links.nodes_behind(link);
    const auto first = std::lower_bound(nodes.begin(), nodes.end(), behind.begin);
    if (first == nodes.end() || *first >= behind.end) continue;
    LinkClassLoad& load = loads[static_cast<std::size_t>(links.kind(link))];
    load.kind = links.kind(link);
    ++load.links;
    load.carried += carried[link];
    const double most = links.rate(link) * seconds;
    capacity[static_cast<std::size_t>(load.kind)] += most;
    if (most > 0.0) load.busiest = std::max(load.busiest, carried[link] / most);
  }
  for (std::size_t kind = 0; kind < loads.size(); ++kind)
    if (capacity[kind] > 0.0) loads[kind].mean = loads[kind].carried / capacity[kind];
  std::erase_if(loads, [](const LinkClassLoad& load) { return load.links == 0; });
  return loads;
}

}  // namespace spillway::planner
