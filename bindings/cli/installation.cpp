#include "installation.h"

#include <sys/auxv.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "child_output.h"
#include "program_file.h"
#include "spillway/base/error.h"
#include "spillway/preload/cuda_part.h"

namespace spillway::cli {

namespace fs = std::filesystem;

namespace {

void add_torch(std::vector<FoundTorch>& found, const std::string& user, const fs::path& library) {
  std::error_code error;
  const fs::path path = fs::canonical(library, error);
  if (error) return;
  for (const FoundTorch& known : found)
    if (known.path == path) return;
  // Where it is a link, the others are beside the link.
  found.push_back({user, path.string(), torch_version_of_file(path.string()).text,
                   cuda_runtime_of_folder(library.parent_path()).value_or("")});
}

void add_torch_of_python(std::vector<FoundTorch>& found, const std::string& python) {
  const auto folder = output_of({python, "-c",
                                 "import importlib.util as u; s = u.find_spec('torch'); "
                                 "print(s.submodule_search_locations[0] if s else '')"});
  if (folder && folder->size() > 1)
    add_torch(found, python,
              fs::path(folder->substr(0, folder->find('\n'))) / "lib/libtorch_cpu.so");
}

}  // namespace

std::string minor_of(const std::string& torch_version) {
  return torch_version.substr(0, torch_version.rfind('.'));
}

std::string Installation::core_for(const std::string& torch_version) const {
  const std::string minor = minor_of(torch_version);
  if (std::find(served.begin(), served.end(), minor) == served.end()) return {};
  return (fs::path(library_folder) / message("libspillway_core_{}.so", minor)).string();
}

std::string Installation::list_of_served() const {
  std::string list;
  for (const std::string& minor : served) {
    const auto& on_gpus = served_on_gpus;
    const bool has_gpus = std::find(on_gpus.begin(), on_gpus.end(), minor) != on_gpus.end();
    list += message("{}{} ({})", list.empty() ? "" : ", ", minor, has_gpus ? "CPU, CUDA" : "CPU");
  }
  return list;
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
    if (minor.find_first_not_of("0123456789.") != std::string::npos) continue;
    found.served.push_back(minor);
    if (fs::exists(folder / preload::cuda_part_of(name), error))
      found.served_on_gpus.push_back(minor);
  }
  std::sort(found.served.begin(), found.served.end());
  std::sort(found.served_on_gpus.begin(), found.served_on_gpus.end());
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

std::vector<FoundTorch> find_torch_of_python(const std::string& program) {
  std::vector<FoundTorch> found;
  if (fs::path(program).filename().string().starts_with("python"))
    add_torch_of_python(found, program);
  return found;
}

std::vector<FoundTorch> find_installed_torches() {
  std::vector<FoundTorch> found;
  if (const char* folder = std::getenv("SPILLWAY_LIBTORCH_DIR"))
    add_torch(found, "SPILLWAY_LIBTORCH_DIR", fs::path(folder) / "lib/libtorch_cpu.so");
  add_torch_of_python(found, "python3");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const fs::path folder = cache != nullptr && *cache != '\0' ? fs::path(cache)
                          : home != nullptr                  ? fs::path(home) / ".cache"
                                                             : fs::path();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "spillway", error))
    add_torch(found, "the set-up", entry.path() / "torch/lib/libtorch_cpu.so");
  return found;
}

}  // namespace spillway::cli
