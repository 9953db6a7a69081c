#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKey.h>

#include <functional>
#include <vector>

namespace spillway::recompute {

/// By which watchers see operators. What they run themselves has to leave it out.
inline constexpr c10::DispatchKey kWatchedKey = c10::DispatchKey::Fake;

/// Sees the operators of a thread below autograd, as an interceptor does.
class CallWatcher {
 public:
  virtual ~CallWatcher() = default;
  /// Then its parts are seen, one by one.
  virtual bool is_made_of_parts(const c10::OperatorHandle& /*op*/,
                                const std::vector<c10::IValue>& /*stack*/) {
    return false;
  }
  /// The arguments of the call are on top of the stack; `run` exchanges them for the results.
  virtual void around(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
                      const std::function<void()>& run) = 0;
};

/// Shows the calling thread's outermost operators to a watcher while it lives.
class Watched {
 public:
  explicit Watched(CallWatcher& watcher);
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

}  // namespace spillway::recompute
