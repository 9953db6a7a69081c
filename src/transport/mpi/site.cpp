#include "site.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <span>
#include <vector>

#include "spillway/base/launcher.h"
#include "spillway/base/shared_library.h"

namespace spillway::transport::mpi {
namespace {

/// MPIs that one shim serves.
struct Abi {
  const char* name;
  const char* shim;
  const char* package;                   ///< Of Debian, with the headers.
  std::array<const char*, 2> libraries;  ///< Whose names stand for the ABI.
  std::array<const char*, 3> own_words;  ///< Any of them stands in what a library says of itself.
  std::array<const char*, 3> launch_words;  ///< Variables of its launchers begin with any of them.
};

constexpr Abi kAbis[] = {
    {"MPICH",
     "libspillway_mpi_mpich.so",
     "libmpich-dev",
     {"libmpi.so.12", "libmpich.so.12"},
     {"MPICH", "Intel(R) MPI", "MVAPICH"},
     {"PMI_", "HYDRA_", "HYDI_"}},
    {"Open MPI",
     "libspillway_mpi_openmpi.so",
     "libopenmpi-dev",
     {"libmpi.so.40", nullptr},
     {"Open MPI", nullptr, nullptr},
     {"OMPI_", nullptr, nullptr}},
};

template <std::size_t kCount>
bool any_of(const std::array<const char*, kCount>& words, auto&& holds) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return word != nullptr && holds(word); });
}

void* open_global(const char* library, int more = 0) {
  return ::dlopen(library, RTLD_NOW | RTLD_GLOBAL | more);
}

constexpr char kVersionSymbol[] = "MPI_Get_library_version";

/// The one that the program has loaded; null: none.
void* find_loaded() {
  if (void* const symbol = ::dlsym(RTLD_DEFAULT, kVersionSymbol)) {
    // The program itself, where it is linked statically: all symbols are in reach already.
    void* const library = open_global(library_of(symbol).c_str(), RTLD_NOLOAD);
    return library != nullptr ? library : open_global(nullptr);
  }
  for (const Abi& abi : kAbis)
    for (const char* const name : abi.libraries)
      if (name != nullptr)
        if (void* const library = open_global(name, RTLD_NOLOAD)) return library;
  return nullptr;
}

/// Of the ABI of the launcher first, then what a compiler would take, then any.
std::vector<const char*> names_to_try() {
  std::vector<const char*> names;
  const auto add = [&](const Abi& abi) {
    for (const char* const name : abi.libraries)
      if (name != nullptr) names.push_back(name);
  };
  for (const Abi& abi : kAbis)
    if (any_of(abi.launch_words, has_launcher_variable)) add(abi);
  names.push_back("libmpi.so");
  for (const Abi& abi : kAbis) add(abi);
  return names;
}

void* open_library(const std::string& wanted) {
  if (!wanted.empty()) {
    void* const library = open_global(wanted.c_str());
    if (library == nullptr)
      throw ConfigError("the MPI that was named cannot be opened: {}", ::dlerror());
    return library;
  }
  if (void* const loaded = find_loaded()) return loaded;
  std::string tried;
  for (const char* const name : names_to_try()) {
    if (void* const library = open_global(name)) return library;
    if (tried.find(name) == std::string::npos)
      tried += (tried.empty() ? "" : ", ") + std::string(name);
  }
  throw UnsupportedError("no MPI was found (tried {}): install MPICH, Open MPI or one of their "
                         "ABI, put the folder of its library into "
                         "LD_LIBRARY_PATH, or name the library",
                         tried);
}

/// What a library says of itself, which may be asked of any before all else.
std::string version_of(void* library, const std::string& path) {
  const auto ask = reinterpret_cast<int (*)(char*, int*)>(::dlsym(library, kVersionSymbol));
  if (ask == nullptr)
    throw ConfigError("{} is no MPI, or one from before its version 3: it lacks {}", path,
                      kVersionSymbol);
  constexpr std::size_t kMost = 8192;  // Of all that are known; others have less.
  std::string text(kMost, '\0');
  int length = 0;
  ask(text.data(), &length);
  text.resize(std::min(text.find_first_of(std::string_view("\n\0", 2)), text.size()));
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

const Abi& abi_of(const std::string& version, const std::string& path) {
  for (const Abi& abi : kAbis)
    if (any_of(abi.own_words,
               [&](const char* word) { return version.find(word) != std::string::npos; }))
      return abi;
  throw UnsupportedError(
      "{} is an MPI of an unknown ABI (\"{}\"): those of MPICH and of Open MPI are known", path,
      version);
}

/// Beside the library with this code, or the program.
std::string folder_of_shims(const char* shim) {
  const std::string here = library_of(reinterpret_cast<const void*>(&open_site));
  std::array<char, PATH_MAX> program{};  // Of a program, `here` is the word that it was started by.
  const bool is_known = ::readlink("/proc/self/exe", program.data(), program.size() - 1) > 0;
  std::string last;
  for (const std::string& file : {here, std::string(is_known ? program.data() : "")}) {
    const std::size_t slash = file.rfind('/');
    if (slash == std::string::npos) continue;
    for (const char* const way : {"", "/../lib"}) {
      last = file.substr(0, slash) + way;
      if (::access((last + "/" + shim).c_str(), R_OK) == 0) return last;
    }
  }
  return last;
}

const Shim* open_shim(const Abi& abi, const std::string& wanted_folder,
                      const std::string& library) {
  const std::string folder = wanted_folder.empty() ? folder_of_shims(abi.shim) : wanted_folder;
  const std::string path = folder + "/" + abi.shim;
  if (::access(path.c_str(), R_OK) != 0)
    throw UnsupportedError("{} has the ABI of {}, and this Spillway was built without its headers: "
                           "there is no {} (install {} or what has "
                           "them, and build again)",
                           library, abi.name, path, abi.package);
  void* const shim = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (shim == nullptr) throw UnsupportedError("{} does not fit {}: {}", path, library, ::dlerror());
  const auto entry = reinterpret_cast<ShimEntry>(::dlsym(shim, kShimSymbol));
  if (entry == nullptr)
    throw UnsupportedError("{} is of another Spillway: it lacks {}", path, kShimSymbol);
  return entry();
}

}  // namespace

Site open_site(const MpiOptions& options) {
  void* const library = open_library(options.library);
  Site site;
  site.library = library_of(::dlsym(library, kVersionSymbol));
  if (site.library.empty()) site.library = options.library;
  site.version = version_of(library, site.library);
  const Abi& abi = abi_of(site.version, site.library);
  site.abi = abi.name;
  site.shim = open_shim(abi, options.shims, site.library);
  return site;
}

void check_mpi(const Shim& shim, std::int32_t error, const char* what) {
  if (error == 0) return;
  char text[512];
  shim.describe_error(error, text, sizeof text);
  throw TransportError("MPI has failed in {}: {}", what, text);
}

}  // namespace spillway::transport::mpi
