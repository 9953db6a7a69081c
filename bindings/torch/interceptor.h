#pragma once

#include <string>

#include "spillway/runtime/runtime.h"

namespace spillway::torch_binding {

/// Shows every outermost operator of LibTorch to the runtime: by a fallback on a dispatch key that
/// nobody uses, or, when there is none, as an observer of all calls.
class Interceptor {
 public:
  /// Takes the first viable key of: Fake, TESTING_ONLY_GenericMode, DeferredInit,
  /// TESTING_ONLY_GenericWrapper; else observes ("record-function"); or does what is named. Throws
  /// UnsupportedError with the reason against it. Switches it on for the calling thread. Once per
  /// process.
  Interceptor(runtime::Runtime& runtime, const std::string& requested_key);

  /// Switches interception on for the calling thread. Cheap; may be repeated.
  static void enable_on_this_thread();

  /// The calling thread is about to allocate. Switches interception on where the thread is older
  /// than the interceptor, and throws what an observed operator could not.
  static void before_allocation();

  /// Lets operators pass untouched on all threads, in a forked child.
  static void disable_for_good() noexcept;

  const std::string& key_name() const { return key_name_; }

 private:
  std::string key_name_;
};

}  // namespace spillway::torch_binding
