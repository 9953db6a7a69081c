// Threads report to the core before they run.

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "next_function.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

using ThreadFunction = void* (*)(void*);
using CreateThread = int (*)(pthread_t*, const pthread_attr_t*, ThreadFunction, void*);

CreateThread known_create = nullptr;

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
  const CreateThread create = next_function(known_create, "pthread_create");
  if (create == nullptr) return ENOSYS;
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
