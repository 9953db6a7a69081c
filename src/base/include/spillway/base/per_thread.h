#pragma once

#include <mutex>
#include <vector>

namespace spillway {

/// One `T` for each thread that asks. When the thread has ended it is handed on to a later one: as
/// it is, or after `begin_thread()` where `T` has that, which forgets what held for one thread
/// alone. None dies: what a trainer frees in its own thread-local destructors may come after ours.
/// Also right in a forked child, where another thread of the parent may have held the lock.
template <typename T>
T& per_thread() {
  struct Pool {
    std::mutex mutex;
    std::vector<T*> free;
  };
  static Pool& pool = *new Pool;
  static constinit thread_local T* current = nullptr;
  if (current != nullptr) return *current;
  struct HandOn {
    ~HandOn() {
      const std::unique_lock lock(pool.mutex, std::try_to_lock);
      if (lock.owns_lock()) pool.free.push_back(current);
      current = nullptr;
    }
  };
  {
    const std::unique_lock lock(pool.mutex, std::try_to_lock);
    if (lock.owns_lock() && !pool.free.empty()) {
      current = pool.free.back();
      pool.free.pop_back();
      if constexpr (requires { current->begin_thread(); }) current->begin_thread();
    }
  }
  if (current == nullptr) current = new T;
  static thread_local const HandOn at_end;
  static_cast<void>(&at_end);
  return *current;
}

}  // namespace spillway
