#include "kernel_files.h"

#include <charconv>
#include <fstream>
#include <sstream>

namespace spillway::topology {
namespace {

// mountinfo writes blanks and backslashes of paths as \040.
std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_octal = [&](std::size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(i + 1) && is_octal(i + 2) &&
        is_octal(i + 3)) {
      result += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                  (text[i + 3] - '0'));
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

std::optional<std::string> read_kernel_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return std::nullopt;
  std::string result = text.str();
  while (!result.empty() && (result.back() == '\n' || result.back() == '\0')) result.pop_back();
  return result;
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  const auto text = read_kernel_file(path);
  return text ? leading_number(*text) : std::nullopt;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(separator);
    if (end != 0 && !text.empty()) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<Mount> read_mounts(const std::string& root) {
  std::vector<Mount> mounts;
  const auto text = read_kernel_file(root + "/proc/self/mountinfo");
  if (!text) return mounts;
  for (const std::string_view line : split(*text, '\n')) {
    const auto fields = split(line, ' ');
    std::size_t dash = 6;
    while (dash < fields.size() && fields[dash] != "-") ++dash;
    if (dash + 3 >= fields.size()) continue;
    mounts.push_back({std::string(fields[2]), unescaped(fields[3]), unescaped(fields[4]),
                      std::string(fields[5]), std::string(fields[dash + 1]),
                      unescaped(fields[dash + 2]), std::string(fields[dash + 3])});
  }
  return mounts;
}

bool has_option(std::string_view comma_separated, std::string_view option) {
  for (const std::string_view each : split(comma_separated, ','))
    if (each == option) return true;
  return false;
}

}  // namespace spillway::topology
