#include "installation.h"

#include <sys/auxv.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "spillway/base/error.h"

namespace spillway::cli {

namespace fs = std::filesystem;

std::string Installation::core_for(const std::string& torch_version) const {
  const std::string minor = torch_version.substr(0, torch_version.rfind('.'));
  if (std::find(served.begin(), served.end(), minor) == served.end()) return {};
  return (fs::path(library_folder) / message("libspillway_core_{}.so", minor)).string();
}

Installation find_installation(const std::string& command_path) {
  constexpr std::string_view kCoreStart = "libspillway_core_";
  Installation found;
  const fs::path folder = fs::path(command_path).parent_path().parent_path() / "lib";
  found.library_folder = folder.string();
  std::error_code error;
  if (fs::exists(folder / "libspillway_preload.so", error))
    found.preload = (folder / "libspillway_preload.so").string();
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kCoreStart, 0) != 0 || entry.path().extension() != ".so") continue;
    const std::string minor = name.substr(kCoreStart.size(), name.size() - kCoreStart.size() - 3);
    // Its part for CUDA lies beside it.
    if (minor.find_first_not_of("0123456789.") == std::string::npos) found.served.push_back(minor);
  }
  std::sort(found.served.begin(), found.served.end());
  return found;
}

std::string own_path() {
  std::error_code error;
  fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (!error) return path.string();
  // Without /proc: as it was started, seen from the folder that was current then.
  const auto* started = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  path = started == nullptr ? fs::path() : fs::canonical(started, error);
  return error ? std::string() : path.string();
}

}  // namespace spillway::cli
