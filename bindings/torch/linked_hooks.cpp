#include "linked_hooks.h"

#include <dlfcn.h>

#include <atomic>

#include "next_definition.h"
#include "process_flags.h"
#include "program_starts.h"
#include "rank_notices.h"
#include "registered_hooks.h"
#include "spillway/base/assert.h"
#include "tensor_access.h"

namespace {

// Kept for the whole process: any thread may be on its way through them.
std::atomic<const SpillwayHooks*> linked_hooks{nullptr};

}  // namespace

namespace spillway {

void torch_binding::register_linked(const SpillwayHooks& hooks) {
  linked_hooks.store(new SpillwayHooks(hooks));
  preload::watch_tensor_access(hooks);
  preload::watch_process_flags(hooks);
}

// Asked by the functions of other libraries that the core replaces, compiled from bindings/preload.
// Under the preload library its own functions come first, and the core's are not reached.
const SpillwayHooks* preload::registered_hooks() { return linked_hooks.load(); }

// Nobody else defines what the core replaces but LibTorch, which it is linked with.
void* preload::next_definition(const char* name, const char* /*shown*/, const void* /*caller*/) {
  void* const symbol = ::dlsym(RTLD_NEXT, name);
  SPILLWAY_ASSERT(symbol != nullptr);
  return symbol;
}

int preload::start_program(const Program& /*program*/, Words environment, const Starter& start) {
  return start(environment);
}

void preload::tell_of_input() {}
void preload::tell_of_full_disk() {}

}  // namespace spillway
