#include "spillway/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace spillway::detail {

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "[spillway] internal error: expected %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace spillway::detail
