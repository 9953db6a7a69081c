// Threads report to the core before they run.

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "registered_hooks.h"

namespace spillway::preload {
namespace {

using ThreadFunction = void* (*)(void*);
using CreateThread = int (*)(pthread_t*, const pthread_attr_t*, ThreadFunction, void*);

struct ThreadStart {
  ThreadFunction function;
  void* argument;
};

void* start_thread(void* opaque) {
  const ThreadStart start = *static_cast<ThreadStart*>(opaque);
  free(opaque);
  registered_hooks()->thread_started();
  return start.function(start.argument);
}

}  // namespace
}  // namespace spillway::preload

extern "C" SPILLWAY_VISIBLE int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                               void* (*function)(void*), void* argument) noexcept {
  using namespace spillway::preload;
  // Not a function-local static: its guard would need the C++ runtime.
  static CreateThread real;
  CreateThread create = __atomic_load_n(&real, __ATOMIC_ACQUIRE);
  if (create == nullptr) {
    create = reinterpret_cast<CreateThread>(dlsym(RTLD_NEXT, "pthread_create"));
    if (create == nullptr) return ENOSYS;
    __atomic_store_n(&real, create, __ATOMIC_RELEASE);
  }
  const SpillwayHooks* told = registered_hooks();
  if (told == nullptr || told->thread_started == nullptr)
    return create(thread, attributes, function, argument);
  auto* start = static_cast<ThreadStart*>(malloc(sizeof(ThreadStart)));
  if (start == nullptr) return EAGAIN;
  *start = {function, argument};
  const int error = create(thread, attributes, &start_thread, start);
  if (error != 0) free(start);
  // Some libraries then wait for that thread for ever.
  if (error == EAGAIN && told->thread_refused != nullptr) told->thread_refused();
  return error;
}
