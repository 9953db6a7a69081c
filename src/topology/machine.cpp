#include "spillway/topology/machine.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "control_groups.h"
#include "kernel_files.h"
#include "memory_nodes.h"
#include "processors.h"

namespace spillway::topology {
namespace {

// "MemTotal:       16384 kB"
std::optional<Bytes> meminfo_value(std::string_view text, std::string_view name) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.substr(0, name.size()) != name || line.substr(name.size(), 1) != ":") continue;
    const auto kib = leading_number(line.substr(name.size() + 1));
    if (kib) return Bytes(*kib * 1024);
  }
  return std::nullopt;
}

Memory read_memory(const Roots& roots) {
  const std::string& root = roots.root;
  Memory memory;
  if (const auto text = read_kernel_file(root + "/proc/meminfo")) {
    memory.total = meminfo_value(*text, "MemTotal");
    memory.available = meminfo_value(*text, "MemAvailable");
  }
  memory.limits = read_memory_limits(root);
  if (auto nodes = read_node_limit(roots)) memory.limits.push_back(std::move(*nodes));
  return memory;
}

// "Max locked memory         8388608              8388608              bytes"
std::optional<std::uint64_t> soft_limit(std::string_view text, std::string_view name) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.substr(0, name.size()) != name) continue;
    const auto fields = split(line.substr(name.size()), ' ');
    if (fields.empty()) return std::nullopt;
    if (fields[0] == "unlimited") return kUnlimited;
    return leading_number(fields[0]);
  }
  return std::nullopt;
}

ProcessLimits read_process_limits(const std::string& root) {
  ProcessLimits limits;
  if (const auto text = read_kernel_file(root + "/proc/self/limits")) {
    limits.address_space_bytes = soft_limit(*text, "Max address space");
    limits.data_bytes = soft_limit(*text, "Max data size");
    limits.locked_bytes = soft_limit(*text, "Max locked memory");
  }
  return limits;
}

// In pages: size, resident, shared, text, lib, data and stack, …
ProcessUse read_process_use(const std::string& root) {
  ProcessUse use;
  const auto text = read_kernel_file(root + "/proc/self/statm");
  if (!text) return use;
  const auto fields = split(*text, ' ');
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto bytes_at = [&](std::size_t place) -> std::optional<std::uint64_t> {
    const auto pages = fields.size() > place ? leading_number(fields[place]) : std::nullopt;
    return pages ? std::optional(*pages * page) : std::nullopt;
  };
  use.address_space_bytes = bytes_at(0);
  use.data_bytes = bytes_at(5);
  return use;
}

// "always [madvise] never" gives "madvise".
std::optional<std::string> chosen_in_brackets(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const auto open = text->find('[');
  const auto close = text->find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  return text->substr(open + 1, close - open - 1);
}

std::optional<int> small_number(const std::string& path) {
  const auto value = read_number(path);
  if (!value) return std::nullopt;
  return static_cast<int>(std::min<std::uint64_t>(*value, 1000));
}

Kernel read_kernel(const std::string& root) {
  Kernel kernel;
  kernel.release = read_kernel_file(root + "/proc/sys/kernel/osrelease");
  kernel.overcommit_mode = small_number(root + "/proc/sys/vm/overcommit_memory");
  kernel.huge_pages =
      chosen_in_brackets(read_kernel_file(root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  kernel.mappings_max = read_number(root + "/proc/sys/vm/max_map_count");
  return kernel;
}

/// What the driver tells of the GPU at that address.
std::string model_by_driver(const std::filesystem::path& folder_of_driver) {
  const auto text = read_kernel_file(folder_of_driver / "information").value_or("");
  for (const std::string_view line : split(text, '\n')) {
    if (line.substr(0, 6) != "Model:") continue;
    const auto start = line.find_first_not_of(" \t", 6);
    if (start != std::string_view::npos) return std::string(line.substr(start));
  }
  return "unknown model";
}

/// Those of the folder, each of which is a device by its bus address; nothing: it cannot be read.
std::optional<std::vector<std::filesystem::path>> devices_in(const std::string& folder) {
  std::error_code absent;
  const std::filesystem::directory_iterator entries(folder, absent);
  if (absent) return std::nullopt;
  std::vector<std::filesystem::path> devices;
  for (const auto& entry : entries) devices.push_back(entry.path());
  std::sort(devices.begin(), devices.end());
  return devices;
}

}  // namespace

Machine discover_machine(const Roots& roots) {
  Machine machine;
  machine.processors = read_processors(roots.processor_text);
  machine.processors.quota = read_processor_quota(roots.root);
  machine.memory = read_memory(roots);
  machine.limits = read_process_limits(roots.root);
  machine.use = read_process_use(roots.root);
  machine.kernel = read_kernel(roots.root);
  machine.gpus = discover_gpus(roots).value_or(std::vector<Gpu>());
  return machine;
}

std::optional<std::vector<Gpu>> discover_gpus(const Roots& roots) {
  constexpr std::string_view kNvidia = "0x10de";
  constexpr std::string_view kDisplay = "0x03";  // Controllers of displays, with and without one.
  const auto on_bus = devices_in(roots.root + "/sys/bus/pci/devices");
  const auto of_driver = devices_in(roots.root + "/proc/driver/nvidia/gpus");
  if (!on_bus && !of_driver) return std::nullopt;
  std::vector<Gpu> gpus;
  for (const auto& folder : of_driver.value_or(std::vector<std::filesystem::path>()))
    gpus.push_back({model_by_driver(folder), folder.filename()});
  for (const auto& folder : on_bus.value_or(std::vector<std::filesystem::path>())) {
    const std::string address = folder.filename();
    const auto is_here = [&](const Gpu& gpu) { return gpu.bus_address == address; };
    if (read_kernel_file(folder / "vendor").value_or("") != kNvidia ||
        !read_kernel_file(folder / "class").value_or("").starts_with(kDisplay) ||
        std::any_of(gpus.begin(), gpus.end(), is_here))
      continue;
    const std::string number = read_kernel_file(folder / "device").value_or("of an unknown model");
    gpus.push_back({"NVIDIA " + number, address, /*has_driver=*/false});
  }
  return gpus;
}

std::optional<UsableMemory> usable_memory(const Memory& memory) {
  std::optional<UsableMemory> smallest;
  if (memory.available) smallest = UsableMemory{*memory.available, "available memory"};
  for (const MemoryLimit& limit : memory.limits) {
    const Bytes left = limit.limit - std::min(limit.limit, limit.used);
    if (!smallest || left < smallest->bytes) smallest = UsableMemory{left, limit.where};
  }
  return smallest;
}

double usable_processors(const Processors& processors, unsigned sharers) {
  const double all = processors.threads.value_or(1);
  const double bound = processors.bound.value_or(all);
  // Bound to a part of them, each has its own: its launcher has shared them out.
  const double threads = bound < all ? bound : bound / sharers;
  return std::min(threads, processors.quota.value_or(all) / sharers);
}

}  // namespace spillway::topology
