// How the core gets in: a function that is seen before LibTorch's own, because a preloaded library
// comes first in every lookup; and the core's registration.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "core_loader.h"
#include "registered_hooks.h"

// void torch::autograd::set_default_engine_stub(Engine& (*)())
#define SPILLWAY_SET_DEFAULT_ENGINE_STUB \
  "_ZN5torch8autograd23set_default_engine_stubEPFRNS0_6EngineEvE"

namespace spillway::preload {
namespace {

using SetEngineStub = void (*)(void*);

// Written once, while the core is being loaded; read from any thread.
SpillwayHooks hooks;
int hooks_are_set = 0;

// Python opens LibTorch for itself alone, where the search behind us finds nothing.
void* real_symbol(const char* name) {
  void* symbol = dlsym(RTLD_NEXT, name);
  if (symbol != nullptr) return symbol;
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return nullptr;
  symbol = dlsym(torch, name);
  dlclose(torch);
  return symbol;
}

__attribute__((constructor)) void on_load() { load_core_if_torch_is_here(); }

__attribute__((destructor)) void on_exit() { report_torch_that_came_unseen(); }

}  // namespace

const SpillwayHooks* registered_hooks() {
  return __atomic_load_n(&hooks_are_set, __ATOMIC_ACQUIRE) != 0 ? &hooks : nullptr;
}

// Called by LibTorch's Python module during import: the moment at which LibTorch is complete and
// nothing has been computed yet.
extern "C" SPILLWAY_VISIBLE void spillway_set_default_engine_stub(void* stub) __asm__(
    SPILLWAY_SET_DEFAULT_ENGINE_STUB);

void spillway_set_default_engine_stub(void* stub) {
  const auto real = reinterpret_cast<SetEngineStub>(real_symbol(SPILLWAY_SET_DEFAULT_ENGINE_STUB));
  if (real == nullptr) {
    fputs("[spillway] error: LibTorch's set_default_engine_stub was called, but no mapped library "
          "has it\n",
          stderr);
    abort();
  }
  load_core_if_torch_is_here();
  real(stub);
}

}  // namespace spillway::preload

extern "C" {

SPILLWAY_VISIBLE int spillway_preload_register(const SpillwayHooks* hooks) {
  if (hooks == nullptr || hooks->version != SPILLWAY_HOOKS_VERSION) return -1;
  spillway::preload::hooks = *hooks;
  __atomic_store_n(&spillway::preload::hooks_are_set, 1, __ATOMIC_RELEASE);
  return 0;
}

}  // extern "C"
