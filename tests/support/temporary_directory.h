#pragma once

#include <string>
#include <vector>

namespace spillway {

/// An empty directory below ${TMPDIR:-/tmp} that goes with all it holds.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::vector<std::string> entries() const;

 private:
  std::string path_;
};

/// The descriptors of this process that point to nameless files below `directory`, as paths that
/// can be opened.
std::vector<std::string> nameless_files_below(const std::string& directory);

}  // namespace spillway
