#include "spillway/base/assert.h"

#include <cstdio>
#include <cstdlib>

#include "spillway/base/own_descriptors.h"

namespace spillway::detail {

void assertion_failed(const char* expression, const char* file, int line) {
  regain_standard_error();
  std::fprintf(stderr, "[spillway] internal error: expected %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace spillway::detail
