#pragma once

// Whether two addresses are of one library: used by the preload library and by the core; needs the
// C library only.

#include <dlfcn.h>

namespace spillway::preload {

inline bool are_of_one_library(const void* one, const void* other) {
  Dl_info of_one{}, of_other{};
  return dladdr(one, &of_one) != 0 && dladdr(other, &of_other) != 0 &&
         of_one.dli_fbase == of_other.dli_fbase;
}

}  // namespace spillway::preload
