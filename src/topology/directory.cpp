#include "spillway/topology/directory.h"

#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "kernel_files.h"
#include "spillway/base/file_systems.h"

namespace spillway::topology {
namespace {

namespace fs = std::filesystem;

bool lies_below(std::string_view path, std::string_view folder) {
  if (folder == "/") return true;
  return path.substr(0, folder.size()) == folder &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

// The mount that serves `path`: the longest fitting point, the latest of equal ones.
std::optional<Mount> mount_of(const std::string& path, const std::string& root) {
  std::optional<Mount> best;
  for (const Mount& mount : read_mounts(root)) {
    if (!lies_below(path, mount.point)) continue;
    if (!best || mount.point.size() >= best->point.size()) best = mount;
  }
  return best;
}

// The sysfs folder of the whole disk under a mount, or an empty path.
fs::path disk_folder(const Mount& mount, const std::string& root) {
  std::error_code absent;
  fs::path folder = fs::canonical(root + "/sys/dev/block/" + mount.device_number, absent);
  if (absent && mount.source.rfind("/dev/", 0) == 0) {
    // File systems of several disks have a number of their own, but name one disk as source.
    std::error_code no_link;
    const fs::path real = fs::canonical(root + mount.source, no_link);
    const fs::path name = no_link ? fs::path(mount.source).filename() : real.filename();
    folder = fs::canonical(fs::path(root + "/sys/class/block") / name, absent);
  }
  if (absent) return {};
  return fs::exists(folder / "partition", absent) ? folder.parent_path() : folder;
}

std::optional<std::string> model_of(const fs::path& folder) {
  auto model = read_kernel_file(folder / "device/model");
  if (!model) {
    // A mapped volume (LVM, encryption) has the model of what lies below it.
    std::error_code absent;
    for (const auto& slave : fs::directory_iterator(folder / "slaves", absent)) {
      fs::path below = fs::canonical(slave.path(), absent);
      if (absent) continue;
      if (fs::exists(below / "partition", absent)) below = below.parent_path();
      model = read_kernel_file(below / "device/model");
      if (model) break;
    }
  }
  while (model && !model->empty() && model->back() == ' ') model->pop_back();
  return model;
}

std::optional<BlockDevice> device_of(const Mount& mount, const std::string& root) {
  const fs::path folder = disk_folder(mount, root);
  if (folder.empty()) return std::nullopt;
  BlockDevice device;
  device.name = folder.filename();
  device.model = model_of(folder);
  // Virtual disks say "rotational" without knowing what lies behind them.
  const bool is_virtual = device.name.rfind("vd", 0) == 0 || device.name.rfind("xvd", 0) == 0;
  if (const auto value = read_number(folder / "queue/rotational"); value && !is_virtual)
    device.is_rotational = *value != 0;
  return device;
}

void note_medium(const FileSystem* known, Directory& result) {
  if (known == nullptr) return;
  result.is_ram_disk = known->medium == Medium::kMemory;
  result.is_network = known->medium == Medium::kNetwork;
}

// Without a table of mounts (no /proc) the kernel still tells the kind by number.
void ask_for_kind(Directory& result) {
  struct statfs system {};
  if (!result.exists || ::statfs(result.path.c_str(), &system) != 0) return;
  const FileSystem* known = find_file_system(static_cast<std::uint32_t>(system.f_type));
  if (known != nullptr) result.filesystem = known->name;
  note_medium(known, result);
}

}  // namespace

Directory inspect_directory(const std::string& path, const Roots& roots) {
  Directory result;
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::absolute(path, error), error);
  result.path = error ? path : real.string();
  result.exists = fs::exists(result.path, error);
  if (error) result.error = error.message();
  result.is_directory = fs::is_directory(result.path, error);
  result.is_writable = result.is_directory && ::access(result.path.c_str(), W_OK | X_OK) == 0;
  struct statvfs space {};
  if (result.exists && ::statvfs(result.path.c_str(), &space) == 0) {
    result.free = Bytes(std::uint64_t{space.f_bavail} * space.f_frsize);
    result.total = Bytes(std::uint64_t{space.f_blocks} * space.f_frsize);
  }
  const auto mount = mount_of(result.path, roots.root);
  if (!mount) {
    ask_for_kind(result);
    return result;
  }
  result.filesystem = mount->filesystem;
  result.mount_point = mount->point;
  note_medium(find_file_system(mount->filesystem), result);
  result.is_read_only = has_option(mount->options, "ro") || has_option(mount->super_options, "ro");
  if (!result.is_ram_disk) result.device = device_of(*mount, roots.root);
  return result;
}

std::string reason_against(const Directory& directory) {
  if (!directory.error.empty()) return "cannot be used: " + directory.error + " (name another)";
  if (!directory.exists) return "does not exist (make it, or name another)";
  if (!directory.is_directory) return "is not a directory (name one)";
  if (directory.is_read_only) return "is mounted read-only (name one that can be written to)";
  if (!directory.is_writable) return "is not writable for this user (name one that is)";
  if (directory.total == Bytes(0))
    return "is on a file system that holds no files of users (name one on a disk)";
  return {};
}

}  // namespace spillway::topology
