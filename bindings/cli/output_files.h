#pragma once

#include <string>
#include <vector>

namespace spillway::cli {

/// A file that a command was told to read or to write, as an error names it.
struct NamedFile {
  std::string word;  ///< "--out", "PROFILE"
  std::string path;  ///< Empty: not given.
};

/// The ending of a path in small letters: ".svg".
std::string ending_of(const std::string& path);

/// Whether what is missing of the folder gets made.
enum class MissingFolder { kRefused, kMade };

/// Throws ConfigError, before anything starts, for an output that is the same file as an input or
/// as another output (by device and inode, or by name where it does not exist yet), that is a
/// folder or no regular file, or whose folder cannot be written to.
void check_outputs(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs,
                   MissingFolder folders = MissingFolder::kRefused);

}  // namespace spillway::cli
