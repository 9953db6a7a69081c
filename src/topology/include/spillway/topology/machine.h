#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"

namespace spillway::topology {

/// Value of a limit that is known to be absent. `nullopt` means unknown.
inline constexpr std::uint64_t kUnlimited = static_cast<std::uint64_t>(-1);

struct NumaNode {
  unsigned index = 0;
  unsigned cores = 0;
  std::optional<Bytes> memory;
};

/// The processors that this process may use.
struct Processors {
  std::optional<unsigned> cores;    ///< Physical cores.
  std::optional<unsigned> threads;  ///< Hardware threads.
  std::optional<unsigned> bound;    ///< Hardware threads that this process is bound to.
  /// Cores of these, each by the kernel's number of its first hardware thread, in order. Empty:
  /// unknown.
  std::vector<unsigned> bound_cores{};
  std::optional<double> quota;  ///< Cores' worth of time that the cgroups allow.
  std::optional<std::string> model;
  std::vector<NumaNode> numa_nodes;
};

/// A limit that a cgroup, or the choice of NUMA nodes, sets on the memory of this process and
/// others.
struct MemoryLimit {
  std::string where;  ///< The file that states it, or what does.
  Bytes limit;
  Bytes used;  ///< Counted against it now, less file pages that the kernel drops on demand.
};

struct Memory {
  std::optional<Bytes> total;
  std::optional<Bytes> available;  ///< Bytes that the kernel could give without swapping.
  /// Of the own cgroup and all above it, innermost first; then of the NUMA nodes that may be used.
  std::vector<MemoryLimit> limits;
};

/// Soft limits of this process; `kUnlimited` for none.
struct ProcessLimits {
  std::optional<std::uint64_t> address_space_bytes;
  std::optional<std::uint64_t> data_bytes;  ///< Limit of writable memory, in use or not.
  std::optional<std::uint64_t> locked_bytes;
};

/// Bytes that this process uses of its limits now.
struct ProcessUse {
  std::optional<std::uint64_t> address_space_bytes;
  std::optional<std::uint64_t> data_bytes;
};

/// Configuration of the kernel.
struct Kernel {
  std::optional<std::string> release;
  std::optional<int> overcommit_mode;         ///< 0 heuristic, 1 always, 2 never.
  std::optional<std::string> huge_pages;      ///< always, madvise or never.
  std::optional<std::uint64_t> mappings_max;  ///< Limit of one process (vm.max_map_count).
};

/// One of NVIDIA's.
struct Gpu {
  std::string name;  ///< As its driver has it, or else the number of its model.
  std::string bus_address;
  bool has_driver = true;  ///< Programs can use it.
};

/// Description of this machine as this process sees it. Plain data.
struct Machine {
  Processors processors;
  Memory memory;
  ProcessLimits limits;
  ProcessUse use;
  Kernel kernel;
  std::vector<Gpu> gpus;
};

/// Where to look. The defaults are the real machine; tests put a small tree elsewhere.
struct Roots {
  std::string root;            ///< Put in front of /proc, /sys and mount points.
  std::string processor_text;  ///< hwloc's synthetic description instead of the real processors.
  /// NUMA nodes ("0-1") that a memory policy binds to, in place of this thread's where `root` is
  /// named.
  std::string memory_policy_nodes{};
};

/// Reads everything. What cannot be read stays unknown; nothing is thrown for it. Any thread.
Machine discover_machine(const Roots& roots = {});

/// The GPUs of the driver, and then those of the PCI bus that it does not serve. Nothing: neither
/// can be told, as where /proc and /sys are not mounted. As `discover_machine`.
std::optional<std::vector<Gpu>> discover_gpus(const Roots& roots = {});

struct UsableMemory {
  Bytes bytes;
  std::string limited_by;  ///< "available memory", or the file of the limit.
};

/// Bytes that this process could still take: the smallest of available memory and what each cgroup
/// limit leaves. Nothing when neither is known.
std::optional<UsableMemory> usable_memory(const Memory& memory);

/// Hardware threads' worth of time that this process may use, one of `sharers` on this machine:
/// those that it is bound to, or its share of all, and no more than its share of what cgroups
/// allow. 1 where nothing is known and nobody shares.
double usable_processors(const Processors& processors, unsigned sharers = 1);

}  // namespace spillway::topology
