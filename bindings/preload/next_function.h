#pragma once

#include <dlfcn.h>

namespace spillway::preload {

/// The function that a function of the same name here stands before. `known` is a global one: the
/// search is made once, at the first call, which may come before our constructors.
template <class Function>
Function next_function(Function& known, const char* name) {
  Function found = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
  if (found == nullptr) {
    found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
    __atomic_store_n(&known, found, __ATOMIC_RELEASE);
  }
  return found;
}

}  // namespace spillway::preload
