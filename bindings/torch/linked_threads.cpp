// Threads of a trainer that links the core. Under the preload library its own pthread_create comes
// first and calls back (see core.cpp), and this one is not reached by the trainer.

#include <dlfcn.h>
#include <pthread.h>

#include <memory>

#include "interceptor.h"

namespace {

struct Start {
  void* (*function)(void*);
  void* argument;
};

void* run_seen(void* raw) {
  const std::unique_ptr<Start> start(static_cast<Start*>(raw));
  spillway::torch_binding::Interceptor::enable_on_this_thread();
  return start->function(start->argument);
}

using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*function)(void*), void* argument) noexcept {
  static const auto next = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  auto start = std::make_unique<Start>(Start{function, argument});
  const int error = next(thread, attributes, &run_seen, start.get());
  if (error == 0) start.release();
  return error;
}
