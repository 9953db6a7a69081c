#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temporary_directory.h"

namespace spillway::topology {

/// A folder that stands for the root of a machine and is removed with this object.
class FakeTree {
 public:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root() + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  void link(const std::string& path, const std::string& target) {
    const std::filesystem::path full = root() + path;
    std::filesystem::create_directories(full.parent_path());
    std::filesystem::create_symlink(target, full);
  }

  const std::string& root() const { return directory_.path(); }

 private:
  const TemporaryDirectory directory_;
};

}  // namespace spillway::topology
