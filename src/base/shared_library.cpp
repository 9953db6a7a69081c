#include "spillway/base/shared_library.h"

#include <dlfcn.h>

namespace spillway {

void* loaded_library(const std::string& name) {
  return ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

void* load_library(const std::string& name, std::string& reason) {
  void* const library = ::dlopen(name.c_str(), RTLD_LAZY);
  if (library != nullptr) return library;
  const char* const why = ::dlerror();
  reason = why == nullptr ? name : why;
  return nullptr;
}

std::string library_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

void* symbol_in(void* library, const char* name) { return ::dlsym(library, name); }

}  // namespace spillway
