#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>

#include <functional>
#include <string>

#include "device_runtimes.h"
#include "spillway/runtime/runtime.h"

namespace spillway::torch_binding {

/// Takes the first viable key of: Fake, TESTING_ONLY_GenericMode, DeferredInit,
/// TESTING_ONLY_GenericWrapper, and switches it on for the calling thread; or the one that is
/// named. Returns its name, or "record-function" when operators must be observed instead. Operators
/// pass untouched until an Interceptor is there. Throws UnsupportedError with the reason against a
/// named one, ConfigError when there is none of that name. Once per process.
std::string take_dispatch_key(const std::string& requested_key);

/// Shows every outermost operator of LibTorch to the runtime: by a fallback on a dispatch key that
/// nobody uses, or, when there is none, as an observer of all calls.
class Interceptor {
 public:
  /// Takes a key, and throws, as `take_dispatch_key` does. `verifies_replays`: see CallRecorder.
  Interceptor(runtime::Runtime& runtime, const std::string& requested_key, bool verifies_replays);
  /// Operators pass from then on. For a start that fails; else it stays as long as the process.
  ~Interceptor();
  Interceptor(const Interceptor&) = delete;
  Interceptor& operator=(const Interceptor&) = delete;

  /// Switches interception on for the calling thread. Cheap; may be repeated.
  static void enable_on_this_thread();

  /// The calling thread is about to allocate. Switches interception on where the thread is older
  /// than the interceptor, and throws what an observed operator could not.
  static void before_allocation();

  /// The same of an allocation on a device beside the host; if an operator runs on the thread, it
  /// runs on that device's runtime from now on. Throws as `Runtime::begin_op`.
  static void before_allocation_on(c10::Device device);

  /// See SpillwayHooks: the program gets a pointer to a tensor (at::TensorBase), and may give it to
  /// a kernel. On a device nobody would see that, so the tensor stays there until it is freed.
  static void before_pointer(const void* tensor, int writes);
  /// The same where only an address in the tensor is known. Not in a program that is split.
  static void before_address(const void* address);
  /// Whether that may have something to do, and so wait for others. Lock-free.
  static bool heeds_address(const void* address) noexcept;

  /// Calls it when an optimizer begins to write, once, on that thread.
  static void tell_of_first_update(void (*tell)());

  /// Has optimizers write a GPU's tensors on the host from now on. Before the first operator; it
  /// needs operators below autograd.
  static void update_on_host();

  /// Lets operators pass untouched on all threads, in a forked child.
  static void disable_for_good() noexcept;

  const std::string& key_name() const { return key_name_; }
  /// Whether one call that is seen is one operator.
  bool is_below_autograd() const;
  /// Runs a kernel that was seen before, perhaps on another thread; see split::Compute.
  static void compute(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                      torch::jit::Stack& stack, const runtime::OpTraits& traits);
  // Of a program that is split: see split::RunBeside and OutputMemoOptions::try_on_gpu.
  static void run_beside(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> shown,
                         c10::ArrayRef<c10::IValue> used, const std::function<void()>& run);
  static void try_on_gpu(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                         const std::function<void()>& trial) {
    run_beside(op, arguments, {}, trial);
  }
  /// At which operators are seen.
  static c10::DispatchKeySet keys();

  /// The CPU allocator is about to free the block that begins there. True: not now, as records read
  /// it; the runtime gets it later. Any thread.
  static bool before_free(const void* memory) noexcept;
  /// The same of the allocator of a device, which gets it back by its deleter.
  static bool before_free_on(c10::Device device, const void* memory) noexcept;

  /// Shows operators on tensors of a device to its runtime from now on.
  static void add_device(c10::DeviceIndex device, runtime::Runtime& runtime,
                         const StreamFacts& streams);

  /// What records operators to run them again; null where none do.
  static const CallRecorder* records();

 private:
  std::string key_name_;
};

}  // namespace spillway::torch_binding
