#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::topology {

/// The text of a small file of /proc or /sys, without the line end at its end.
std::optional<std::string> read_kernel_file(const std::string& path);

/// The file's text as one decimal number.
std::optional<std::uint64_t> read_number(const std::string& path);

/// "123" at the start of `text`, blanks before it skipped.
std::optional<std::uint64_t> leading_number(std::string_view text);

std::vector<std::string_view> split(std::string_view text, char separator);

/// One line of /proc/self/mountinfo.
struct Mount {
  std::string device_number;  ///< "259:1"
  std::string root;           ///< Folder of the file system that is mounted.
  std::string point;
  std::string options;
  std::string filesystem;
  std::string source;
  std::string super_options;
};

std::vector<Mount> read_mounts(const std::string& root);

bool has_option(std::string_view comma_separated, std::string_view option);

}  // namespace spillway::topology
