#include "support/temporary_directory.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <system_error>

namespace spillway {

TemporaryDirectory::TemporaryDirectory()
    : path_((std::filesystem::temp_directory_path() / "spillway-test-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot create " + path_);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryDirectory::entries() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  return names;
}

std::vector<std::string> nameless_files_below(const std::string& directory) {
  std::map<std::string, std::string> found;  // By file: threads share tables of descriptors.
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::error_code ended_meanwhile;
    const std::filesystem::directory_iterator open(task.path() / "fd", ended_meanwhile);
    for (const auto& entry : open) {
      const std::string target =
          std::filesystem::read_symlink(entry.path(), ended_meanwhile).string();
      if (target.starts_with(directory + "/") && target.ends_with(" (deleted)"))
        found.emplace(target, entry.path().string());
    }
  }
  std::vector<std::string> paths;
  for (const auto& [target, path] : found) paths.push_back(path);
  return paths;
}

}  // namespace spillway
