// Stands for the core: says what it is told.

#include <dlfcn.h>

#include <cstdio>

#include "spillway/preload/hooks.h"

namespace {

void thread_started() { std::puts("core: a thread started"); }

struct AtLoad {
  AtLoad() {
    std::puts("core: loaded");
    const auto tell =
        reinterpret_cast<SpillwayPreloadRegister>(dlsym(RTLD_DEFAULT, "spillway_preload_register"));
    if (tell == nullptr) {
      std::puts("core: no preload");
      return;
    }
    SpillwayHooks hooks{};
    hooks.version = SPILLWAY_HOOKS_VERSION + 1;
    hooks.thread_started = &thread_started;
    std::printf("core: a later version gets %d\n", tell(&hooks));
    hooks.version = SPILLWAY_HOOKS_VERSION;
    std::printf("core: registered %d\n", tell(&hooks));
  }
} at_load;

}  // namespace
