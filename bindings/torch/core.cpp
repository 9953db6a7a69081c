#include "core.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cpu_allocator.h"
#include "spillway/base/log.h"
#include "spillway/preload/hooks.h"
#include "spillway/swap/spill_store_factory.h"

namespace spillway::torch_binding {
namespace {

Core* instance = nullptr;

std::unique_ptr<memory::FrameMapper> make_mapper(const std::string& requested, std::string& chosen) {
  if (requested != "auto") {
    chosen = requested;
    return memory::make_frame_mapper(memory::mapper_kind_from(requested));
  }
  std::string reasons;
  for (const memory::MapperProbe& probe : memory::probe_mappers()) {
    if (probe.is_viable) {
      chosen = memory::name_of(probe.kind);
      return memory::make_frame_mapper(probe.kind);
    }
    reasons += message("\n  {}: {}", memory::name_of(probe.kind), probe.reason);
  }
  throw UnsupportedError("memory cannot be paged on this system:{}", reasons);
}

void on_thread_started() { Interceptor::enable_on_this_thread(); }

void register_with_preload() {
  auto* const function = reinterpret_cast<SpillwayPreloadRegister>(
      ::dlsym(RTLD_DEFAULT, "spillway_preload_register"));
  if (function == nullptr) return;
  SpillwayHooks hooks{};
  hooks.version = SPILLWAY_HOOKS_VERSION;
  hooks.thread_started = &on_thread_started;
  if (function(&hooks) != 0)
    throw UnsupportedError("libspillway_preload.so and libspillway_core are of different versions; "
                           "install both from the same build");
}

}  // namespace

Core& Core::start(const runtime::Settings& settings) {
  instance = new Core(settings);
  return *instance;
}

Core* Core::running() noexcept { return instance; }

}  // namespace spillway::torch_binding
