#include "control_groups.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "kernel_files.h"

namespace spillway::topology {
namespace {

// From here on a number means "no limit": v1 says so with the largest count of whole pages.
constexpr std::uint64_t kAsGoodAsUnlimited = std::uint64_t{1} << 62;

// A cgroup folder and those above it up to the mount point, as paths below `root`.
std::vector<std::string> folders_upwards(const Mount& mount, std::string_view group) {
  // A container without a cgroup namespace sees the host's path, of which the mount shows a part;
  // a process moved in from outside sees a path with "..". Its own place is the mount point then.
  if (mount.root != "/" && group.substr(0, mount.root.size()) == mount.root)
    group.remove_prefix(mount.root.size());
  else if (mount.root != "/" || group.find("..") != std::string_view::npos)
    group = "";
  if (!group.empty() && group.front() != '/') group = "";  // Of "/docker/abc" below "/docker/ab".
  std::vector<std::string> folders;
  std::string path(group);
  while (!path.empty() && path != "/") {
    folders.push_back(mount.point + path);
    path.erase(path.rfind('/'));
  }
  folders.push_back(mount.point);
  return folders;
}

// The folders of the hierarchy that has `controller` (v1), or of v2 when it is empty.
std::vector<std::string> own_folders(const std::string& root, std::string_view controller) {
  const auto groups = read_kernel_file(root + "/proc/self/cgroup");
  if (!groups) return {};
  const auto mounts = read_mounts(root);
  for (const std::string_view line : split(*groups, '\n')) {
    const auto first = line.find(':');
    const auto second = line.find(':', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool is_wanted =
        controller.empty() ? controllers.empty() : has_option(controllers, controller);
    if (!is_wanted) continue;
    for (const Mount& mount : mounts) {
      const bool fits = controller.empty() ? mount.filesystem == "cgroup2"
                                           : mount.filesystem == "cgroup" &&
                                                 has_option(mount.super_options, controller);
      if (fits) return folders_upwards(mount, line.substr(second + 1));
    }
  }
  return {};
}

// The value of "name value" in a statistics file, 0 without it.
std::uint64_t statistic(const std::string& path, std::string_view name) {
  const auto text = read_kernel_file(path);
  if (!text) return 0;
  for (const std::string_view line : split(*text, '\n')) {
    if (line.size() > name.size() && line.substr(0, name.size()) == name &&
        line[name.size()] == ' ')
      return leading_number(line.substr(name.size())).value_or(0);
  }
  return 0;
}

struct LimitFiles {
  const char* limit;
  const char* usage;
  const char* droppable;  // Name in memory.stat.
};

void append_limits(const std::string& root, const std::vector<std::string>& folders,
                   const LimitFiles& files, std::vector<MemoryLimit>& limits) {
  for (const std::string& folder : folders) {
    const auto limit = read_number(root + folder + "/" + files.limit);
    if (!limit || *limit >= kAsGoodAsUnlimited) continue;  // "max" is no number.
    const auto used = read_number(root + folder + "/" + files.usage).value_or(0);
    const auto droppable = statistic(root + folder + "/memory.stat", files.droppable);
    limits.push_back(
        {folder + "/" + files.limit, Bytes(*limit), Bytes(used - std::min(used, droppable))});
  }
}

std::optional<double> quota_of(const std::string& folder, bool is_v2) {
  if (is_v2) {
    const auto text = read_kernel_file(folder + "/cpu.max");
    if (!text) return std::nullopt;
    const auto parts = split(*text, ' ');
    const auto quota = parts.empty() ? std::nullopt : leading_number(parts[0]);
    const auto period = parts.size() < 2 ? std::nullopt : leading_number(parts[1]);
    if (!quota || !period || *period == 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
  }
  const auto quota = read_number(folder + "/cpu.cfs_quota_us");  // "-1" is no number here.
  const auto period = read_number(folder + "/cpu.cfs_period_us");
  if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace

std::vector<MemoryLimit> read_memory_limits(const std::string& root) {
  std::vector<MemoryLimit> limits;
  const auto unified = own_folders(root, "");
  append_limits(root, unified, {"memory.max", "memory.current", "inactive_file"}, limits);
  // Beyond memory.high the kernel throttles a process until it seems to hang.
  append_limits(root, unified, {"memory.high", "memory.current", "inactive_file"}, limits);
  append_limits(root, own_folders(root, "memory"),
                {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}, limits);
  return limits;
}

std::optional<double> read_processor_quota(const std::string& root) {
  std::optional<double> smallest;
  for (const bool is_v2 : {true, false}) {
    for (const std::string& folder : own_folders(root, is_v2 ? "" : "cpu")) {
      const auto quota = quota_of(root + folder, is_v2);
      if (quota && (!smallest || *quota < *smallest)) smallest = quota;
    }
  }
  return smallest;
}

}  // namespace spillway::topology
