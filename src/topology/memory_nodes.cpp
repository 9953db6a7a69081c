#include "memory_nodes.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>

#include "kernel_files.h"

namespace spillway::topology {
namespace {

using Nodes = std::set<unsigned>;

// More than any machine has.
constexpr std::uint64_t kMostNodes = 1024;

/// "0-2,5"; empty where it is no such list.
Nodes nodes_in(std::string_view list) {
  Nodes nodes;
  for (const std::string_view part : split(list, ',')) {
    const auto first = leading_number(part);
    if (!first) continue;
    const auto dash = part.find('-');
    const auto last =
        dash == std::string_view::npos ? first : leading_number(part.substr(dash + 1));
    if (!last) continue;
    for (std::uint64_t node = *first; node <= std::min(*last, kMostNodes); ++node)
      nodes.insert(static_cast<unsigned>(node));
  }
  return nodes;
}

std::string text_of(const Nodes& nodes) {
  std::string text;
  for (const unsigned node : nodes)
    text.append(text.empty() ? "" : ",").append(std::to_string(node));
  return text;
}

/// The value of "Name:   value" in a file of lines.
std::optional<std::string> value_in(const std::string& path, std::string_view name) {
  const auto text = read_kernel_file(path);
  if (!text) return std::nullopt;
  for (const std::string_view line : split(*text, '\n')) {
    const auto at = line.find(name);
    if (at == std::string_view::npos || line.substr(at + name.size(), 1) != ":") continue;
    if (at > 0 && line[at - 1] != ' ') continue;  // Of "MemUsed" in "HugeMemUsed".
    const auto start = line.find_first_not_of(" \t", at + name.size() + 1);
    return start == std::string_view::npos ? std::string() : std::string(line.substr(start));
  }
  return std::nullopt;
}

/// Nodes of a policy that takes memory from nowhere else; empty: there is none. Of the calling
/// thread, which threads and programs that it starts inherit.
Nodes nodes_of_policy() {
  constexpr int kModeFlags =
      MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | (1 << 13);  // NUMA_BALANCING
  constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kMostNodes / kWordBits> mask{};
  int mode = 0;
  if (::syscall(SYS_get_mempolicy, &mode, mask.data(), kMostNodes, 0UL, 0UL) != 0) return {};
  if ((mode & ~kModeFlags) != MPOL_BIND) return {};
  Nodes nodes;
  for (unsigned node = 0; node < kMostNodes; ++node)
    if ((mask[node / kWordBits] >> (node % kWordBits) & 1UL) != 0) nodes.insert(node);
  return nodes;
}

/// Bytes of a line "Node 0 Name:  123 kB" in the file of a node.
std::uint64_t bytes_in(const std::string& path, std::string_view name) {
  const auto value = value_in(path, name);
  return value ? leading_number(*value).value_or(0) * 1024 : 0;
}

Nodes common(const Nodes& some, const Nodes& others) {
  Nodes both;
  std::set_intersection(some.begin(), some.end(), others.begin(), others.end(),
                        std::inserter(both, both.end()));
  return both;
}

}  // namespace

std::optional<MemoryLimit> read_node_limit(const Roots& roots) {
  const std::string folder = roots.root + "/sys/devices/system/node";
  const auto with_memory = read_kernel_file(folder + "/has_memory");
  const auto allowed = value_in(roots.root + "/proc/self/status", "Mems_allowed_list");
  if (!with_memory || !allowed) return std::nullopt;
  const Nodes all = nodes_in(*with_memory);
  Nodes usable = common(all, nodes_in(*allowed));
  std::string where = "Mems_allowed of /proc/self/status";
  const Nodes policy = roots.root.empty() ? nodes_of_policy() : nodes_in(roots.memory_policy_nodes);
  if (const Nodes bound = common(usable, policy); !bound.empty() && bound != usable) {
    usable = bound;
    where = "the memory policy (numactl --membind)";
  }
  if (usable.empty() || usable == all) return std::nullopt;
  MemoryLimit limit;
  limit.where = where + ", NUMA nodes " + text_of(usable);
  std::uint64_t left = 0;
  for (const unsigned node : usable) {
    const std::string file = folder + "/node" + std::to_string(node) + "/meminfo";
    limit.limit += Bytes(bytes_in(file, "MemTotal"));
    // There is no MemAvailable of a node: what is free, and what the kernel drops on demand.
    left += bytes_in(file, "MemFree") + bytes_in(file, "Active(file)") +
            bytes_in(file, "Inactive(file)") + bytes_in(file, "SReclaimable");
  }
  if (limit.limit == Bytes()) return std::nullopt;
  limit.used = limit.limit - std::min(limit.limit, Bytes(left));
  return limit;
}

}  // namespace spillway::topology
