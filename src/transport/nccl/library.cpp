#include "library.h"

#include <dlfcn.h>

#include "spillway/base/error.h"
#include "spillway/base/shared_library.h"
#include "spillway/transport/nccl/nccl_transport.h"

namespace spillway::transport::nccl {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr const char* kMend =
    "LibTorch for CUDA brings one (the package nvidia-nccl-cu13): put its folder into "
    "LD_LIBRARY_PATH";

/// The one that the program has; null: none.
void* find_loaded() {
  if (void* const loaded = loaded_library(kName)) return loaded;
  // Under another name, or linked into the program.
  void* const symbol = symbol_in(RTLD_DEFAULT, "ncclGetVersion");
  return symbol == nullptr ? nullptr : loaded_library(library_of(symbol));
}

void* open_library(const std::string& wanted, std::string& reason) {
  std::string why;
  if (!wanted.empty()) {
    void* const library = load_library(wanted, why);
    if (library == nullptr) reason = message("the NCCL that was named cannot be opened: {}", why);
    return library;
  }
  if (void* const loaded = find_loaded()) return loaded;
  if (void* const found = load_library(kName, why)) return found;
  reason = message("NCCL cannot be loaded ({}): {}", why, kMend);
  return nullptr;
}

/// The name of a function that is missing; null: all are there.
const char* find_functions(void* library, int version, Functions& found) {
#define SPILLWAY_FIND(result, name, parameters) \
  if (!find_function(library, #name, found.name)) return #name;
  SPILLWAY_NCCL(SPILLWAY_FIND)
  if (version < kOldestVersionThatSplits) return nullptr;
  SPILLWAY_FIND(, ncclCommSplit, )
#undef SPILLWAY_FIND
  return nullptr;
}

}  // namespace

Library find_library(const std::string& wanted) {
  Library found;
  void* const library = open_library(wanted, found.reason);
  if (library == nullptr) return found;
  // Asked before the others, since an old one lacks some of them.
  decltype(Functions::ncclGetVersion) ask = nullptr;
  find_function(library, "ncclGetVersion", ask);
  found.path = ask == nullptr ? wanted : library_of(reinterpret_cast<const void*>(ask));
  if (ask == nullptr || ask(&found.version) != Result::kSuccess) {
    found.reason = message("{} is no NCCL: it does not tell its version",
                           found.path.empty() ? kName : found.path);
  } else if (found.version < kOldestVersion) {
    found.reason = message("{} is NCCL {}, and {} or later is needed: {}", found.path,
                           release_of(found.version), release_of(kOldestVersion), kMend);
  } else if (const char* const missing = find_functions(library, found.version, found.call)) {
    found.reason = message("{} is NCCL {} and has no {}: {}", found.path, release_of(found.version),
                           missing, kMend);
  }
  return found;
}

std::string release_of(int version) {
  // Until 2.8 a release had four digits.
  const int unit = version < 10000 ? 1000 : 10000;
  return message("{}.{}.{}", version / unit, version % unit / 100, version % 100);
}

}  // namespace spillway::transport::nccl

namespace spillway::transport {

NcclFacts nccl_facts(const std::string& library) {
  const nccl::Library found = nccl::find_library(library);
  NcclFacts facts{found.path, {}, found.reason};
  if (found.reason.empty()) facts.version = nccl::release_of(found.version);
  return facts;
}

}  // namespace spillway::transport
