// How the core gets in: functions that are seen before LibTorch's own, because a preloaded library
// comes first in every lookup; and the core's registration.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "core_loader.h"
#include "kept_environment.h"
#include "next_definition.h"
#include "process_flags.h"
#include "registered_hooks.h"
#include "run_listener.h"
#include "tensor_access.h"
#include "torch_in_process.h"

// void torch::autograd::set_default_engine_stub(Engine& (*)())
#define SPILLWAY_SET_DEFAULT_ENGINE_STUB \
  "_ZN5torch8autograd23set_default_engine_stubEPFRNS0_6EngineEvE"

// c10::Allocator* c10::GetCPUAllocator()
#define SPILLWAY_GET_CPU_ALLOCATOR "_ZN3c1015GetCPUAllocatorEv"

namespace spillway::preload {
namespace {

using GetCpuAllocator = void* (*)();
using SetEngineStub = void (*)(void*);

// Written once, while the core is being loaded; read from any thread.
SpillwayHooks hooks;
int hooks_are_set = 0;

void* symbol_in(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* symbol = dlsym(handle, name);
  dlclose(handle);
  return symbol;
}

// Python and plugins open LibTorch for themselves alone, where the search behind us finds nothing.
// And a plugin may have all of LibTorch inside.
void* real_symbol(const char* name, const void* caller) {
  void* symbol = dlsym(RTLD_NEXT, name);
  if (symbol != nullptr) return symbol;
  TorchInProcess torch;
  find_torch(torch, /*with_version=*/false);
  if (torch.copies > 0) symbol = symbol_in(torch.path, name);
  Dl_info from{};
  if (symbol == nullptr && dladdr(caller, &from) != 0) symbol = symbol_in(from.dli_fname, name);
  return symbol;
}

__attribute__((constructor)) void on_load() {
  remember_run();
  keep_environment();
  load_core_if_torch_is_here();
  if (!is_core_tried()) listen_for_cores();
}

__attribute__((destructor)) void on_exit() {
  report_torch_that_came_unseen();
  report_plain_run();
}

}  // namespace

void* next_definition(const char* name, const char* shown, const void* caller) {
  void* symbol = real_symbol(name, caller);
  if (symbol != nullptr) return symbol;
  fprintf(stderr, "[spillway] error: %s was called, but no mapped library has it\n", shown);
  abort();
}

const SpillwayHooks* registered_hooks() {
  return __atomic_load_n(&hooks_are_set, __ATOMIC_ACQUIRE) != 0 ? &hooks : nullptr;
}

// Called by LibTorch's Python module during import: the moment at which LibTorch is complete and
// nothing has been computed yet.
extern "C" SPILLWAY_VISIBLE void spillway_set_default_engine_stub(void* stub) __asm__(
    SPILLWAY_SET_DEFAULT_ENGINE_STUB);

void spillway_set_default_engine_stub(void* stub) {
  const auto real = reinterpret_cast<SetEngineStub>(next_definition(
      SPILLWAY_SET_DEFAULT_ENGINE_STUB, "set_default_engine_stub", __builtin_return_address(0)));
  load_core_if_torch_is_here();
  real(stub);
}

// Called for every allocation of a tensor. In a program that opens LibTorch with dlopen the first
// one is the first moment that is seen; when it returns, the allocator is the core's.
extern "C" SPILLWAY_VISIBLE void* spillway_get_cpu_allocator() __asm__(SPILLWAY_GET_CPU_ALLOCATOR);

void* spillway_get_cpu_allocator() {
  static void* found = nullptr;
  void* real = __atomic_load_n(&found, __ATOMIC_ACQUIRE);
  if (real == nullptr) {
    real =
        next_definition(SPILLWAY_GET_CPU_ALLOCATOR, "GetCPUAllocator", __builtin_return_address(0));
    __atomic_store_n(&found, real, __ATOMIC_RELEASE);
  }
  load_core_at_first_allocation();
  return reinterpret_cast<GetCpuAllocator>(real)();
}

}  // namespace spillway::preload

extern "C" {

SPILLWAY_VISIBLE int spillway_preload_register(const SpillwayHooks* hooks) {
  if (hooks == nullptr || hooks->version != SPILLWAY_HOOKS_VERSION) return -1;
  spillway::preload::hooks = *hooks;
  spillway::preload::watch_tensor_access(*hooks);
  spillway::preload::watch_process_flags(*hooks);
  __atomic_store_n(&spillway::preload::hooks_are_set, 1, __ATOMIC_RELEASE);
  return 0;
}

}  // extern "C"
