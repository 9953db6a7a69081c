// Stands for the core: says what it is told, and answers as FAKE_CORE_KEY says.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "spillway/preload/dispatch_key.h"
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

int spillway_try_dispatch_key(const char* requested, char* text, size_t size) {
  const char* told = std::getenv("FAKE_CORE_KEY");
  const std::string key = told == nullptr ? "Fake" : told;
  if (key == "crash") std::abort();
  if (key == "none") {
    std::snprintf(text, size, "nobody may take %s", requested);
    return 1;
  }
  std::snprintf(text, size, "%s", key.c_str());
  return 0;
}
