#include "installed_torches.h"

#include <cstdlib>
#include <filesystem>

#include "child_output.h"
#include "program_file.h"

namespace spillway::cli {
namespace {

namespace fs = std::filesystem;

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
