#include "processors.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>
#include <type_traits>

namespace spillway::topology {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using OwnedTopology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

OwnedTopology load_topology(const std::string& synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  OwnedTopology topology(raw);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0)
    return nullptr;
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

/// Those of taskset, numactl or a batch system; nothing for a machine that is not this one.
void read_binding(hwloc_topology_t topology, Processors& result) {
  if (hwloc_topology_is_thissystem(topology) == 0) return;
  const std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_t)> bound(hwloc_bitmap_alloc(),
                                                                        &hwloc_bitmap_free);
  if (!bound || hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_PROCESS) != 0) return;
  const int threads = hwloc_bitmap_weight(bound.get());
  if (threads <= 0) return;
  result.bound = static_cast<unsigned>(threads);
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;)
    if (hwloc_bitmap_intersects(core->cpuset, bound.get()) != 0)
      result.bound_cores.push_back(
          static_cast<unsigned>(hwloc_bitmap_first(core->complete_cpuset)));
  std::sort(result.bound_cores.begin(), result.bound_cores.end());
}

std::optional<unsigned> count(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const int objects = hwloc_get_nbobjs_by_type(topology, type);
  if (objects <= 0) return std::nullopt;
  return static_cast<unsigned>(objects);
}

}  // namespace

Processors read_processors(const std::string& synthetic) {
  Processors result;
  const OwnedTopology topology = load_topology(synthetic);
  if (!topology) return result;
  result.cores = count(topology.get(), HWLOC_OBJ_CORE);
  result.threads = count(topology.get(), HWLOC_OBJ_PU);
  read_binding(topology.get(), result);
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, 0);
  const char* model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
  if (model != nullptr) result.model = model;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    const int cores =
        hwloc_get_nbobjs_inside_cpuset_by_type(topology.get(), node->cpuset, HWLOC_OBJ_CORE);
    NumaNode found;
    found.index = node->os_index;
    found.cores = cores > 0 ? static_cast<unsigned>(cores) : 0;
    if (node->attr->numanode.local_memory > 0)
      found.memory = Bytes(node->attr->numanode.local_memory);
    result.numa_nodes.push_back(found);
  }
  return result;
}

}  // namespace spillway::topology
