// What happens when the core library is loaded: under `spillway run` it starts by itself.

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "core.h"
#include "spillway/base/log.h"

namespace {

__attribute__((constructor)) void start_under_the_command() {
  const char* active = std::getenv("SPILLWAY_ACTIVE");
  if (active == nullptr || std::strcmp(active, "1") != 0) return;
  try {
    spillway::torch_binding::Core::start(spillway::runtime::settings_from_environment());
  } catch (const std::exception& error) {
    spillway::log_error("{}", error.what());
    // Training on without the budget that was asked for could take the machine down.
    ::_exit(2);
  }
}

}  // namespace
