#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace spillway {

/// A profile or a trace that others published.
struct ReferenceFile {
  std::string path;
  bool is_whole = false;  ///< Else an extract of it, which tests/support/reference_data holds.
};

/// The extract of a published file, named as "pipedream/vgg16.graph.txt"; behind it the file
/// itself, where SPILLWAY_REFERENCE_DATA names the folder. Throws std::runtime_error when that
/// lacks it.
std::vector<ReferenceFile> reference_files(const std::string& name);

inline std::ostream& operator<<(std::ostream& out, const ReferenceFile& file) {
  return out << (file.is_whole ? "all of " : "the extract ") << file.path;
}

}  // namespace spillway
