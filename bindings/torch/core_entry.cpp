// What happens when the core library is loaded: under `spillway run` it starts by itself. And what
// `spillway doctor` asks it, in a process that trains nothing.

#include <unistd.h>

#include <cstdio>

#include "core.h"
#include "interceptor.h"
#include "spillway/base/log.h"
#include "spillway/preload/active.h"
#include "spillway/preload/dispatch_key.h"

namespace {

__attribute__((constructor)) void start_under_the_command() {
  if (spillway_is_active() == 0) return;
  try {
    spillway::torch_binding::Core::start(spillway::runtime::settings_from_environment());
  } catch (const std::exception& error) {
    spillway::log_error("{}", error.what());
    // Training on without the budget that was asked for could take the machine down.
    ::_exit(2);
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int spillway_try_dispatch_key(
    const char* requested, char* text, size_t size) {
  try {
    const std::string name = spillway::torch_binding::take_dispatch_key(requested);
    std::snprintf(text, size, "%s", name.c_str());
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(text, size, "%s", error.what());
    return 1;
  }
}
