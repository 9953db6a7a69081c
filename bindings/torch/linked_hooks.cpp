#include "linked_hooks.h"

#include <atomic>

#include "program_starts.h"
#include "registered_hooks.h"

namespace {

// Kept for the whole process: any thread may be on its way through them.
std::atomic<const SpillwayHooks*> linked_hooks{nullptr};

}  // namespace

namespace spillway {

void torch_binding::register_linked(const SpillwayHooks& hooks) {
  linked_hooks.store(new SpillwayHooks(hooks));
}

// Asked by the functions of the C library that the core replaces, compiled from bindings/preload.
// Under the preload library its own functions come first, and the core's are not reached.
const SpillwayHooks* preload::registered_hooks() { return linked_hooks.load(); }

int preload::start_program(const Program& /*program*/, Words environment, const Starter& start) {
  return start(environment);
}

}  // namespace spillway
