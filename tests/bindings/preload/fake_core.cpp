// Stands for the core: says what it is told, and changes the stub that it is shown.

#include <dlfcn.h>

#include <cstdio>

#include "spillway/preload/hooks.h"

namespace {

void thread_started() { std::puts("core: a thread started"); }

void* engine_stub_given(void* stub) {
  std::printf("core: stub %s\n", stub == nullptr ? "none" : "given");
  return nullptr;
}

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
    hooks.engine_stub_given = &engine_stub_given;
    std::printf("core: a later version gets %d\n", tell(&hooks));
    hooks.version = SPILLWAY_HOOKS_VERSION;
    std::printf("core: registered %d\n", tell(&hooks));
  }
} at_load;

}  // namespace
