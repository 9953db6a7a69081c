#include "store/directory_facts.h"

#include <sys/stat.h>
#include <sys/statfs.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "spillway/base/error.h"
#include "spillway/base/file_systems.h"

namespace spillway::swap {
namespace {

std::string name_of_file_system(std::uint32_t magic) {
  if (const FileSystem* known = find_file_system(magic)) return std::string(known->name);
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%x", magic);
  return text.data();
}

}  // namespace

DirectoryFacts inspect_directory(const std::string& path) {
  DirectoryFacts facts;
  struct stat status {};
  struct statfs system {};
  if (::stat(path.c_str(), &status) != 0 || ::statfs(path.c_str(), &system) != 0) {
    facts.trouble = message("{} cannot be used: {}", path, std::strerror(errno));
    return facts;
  }
  facts.device = status.st_dev;
  facts.file_system = name_of_file_system(static_cast<std::uint32_t>(system.f_type));
  return facts;
}

}  // namespace spillway::swap
