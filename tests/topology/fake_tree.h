#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace spillway::topology {

/// A folder that stands for the root of a machine and is removed with this object.
class FakeTree {
 public:
  FakeTree() {
    std::string pattern = testing::TempDir() + "spillway_tree_XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~FakeTree() { std::filesystem::remove_all(root_); }
  FakeTree(const FakeTree&) = delete;
  FakeTree& operator=(const FakeTree&) = delete;

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  void link(const std::string& path, const std::string& target) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::filesystem::create_symlink(target, full);
  }

  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

}  // namespace spillway::topology
