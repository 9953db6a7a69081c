#pragma once

#include <pthread.h>

#include <mutex>
#include <vector>

#include "spillway/base/assert.h"

namespace spillway {

template <typename T>
inline constinit thread_local T* of_this_thread = nullptr;

/// Those of threads that have ended. A key of pthreads and not a thread-local object hands them on:
/// it does so after all of those have been destroyed, and again where one is asked for even later.
template <typename T>
struct PerThreadPool {
  PerThreadPool() { SPILLWAY_ASSERT(::pthread_key_create(&at_end, &hand_on) == 0); }
  static PerThreadPool& instance() {
    static PerThreadPool& pool = *new PerThreadPool;
    return pool;
  }
  static void hand_on(void* ended) {
    of_this_thread<T> = nullptr;
    PerThreadPool& pool = instance();
    const std::unique_lock lock(pool.mutex, std::try_to_lock);
    if (lock.owns_lock()) pool.free.push_back(static_cast<T*>(ended));
  }
  T* take() {
    const std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock.owns_lock() || free.empty()) return nullptr;
    T* const taken = free.back();
    free.pop_back();
    return taken;
  }

  std::mutex mutex;
  std::vector<T*> free;
  pthread_key_t at_end{};
};

/// What `per_thread` gives a thread that asks for the first time.
template <typename T>
T& hand_to_this_thread() {
  PerThreadPool<T>& pool = PerThreadPool<T>::instance();
  T* taken = pool.take();
  if (taken == nullptr) {
    taken = new T;
  } else if constexpr (requires { taken->begin_thread(); }) {
    taken->begin_thread();
  }
  of_this_thread<T> = taken;
  ::pthread_setspecific(pool.at_end, taken);
  return *taken;
}

/// One `T` for each thread that asks. When the thread has ended it is handed on to a later one: as
/// it is, or after `begin_thread()` where `T` has that, which forgets what held for one thread
/// alone. None dies: what a trainer frees in its own thread-local destructors may come after ours.
/// Also right in a forked child, where another thread of the parent may have held the lock.
template <typename T>
T& per_thread() {
  return of_this_thread<T> != nullptr ? *of_this_thread<T> : hand_to_this_thread<T>();
}

}  // namespace spillway
