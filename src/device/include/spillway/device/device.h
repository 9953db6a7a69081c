#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "spillway/base/bytes.h"

namespace spillway::device {

/// What a piece of work came to. `error` is empty when it succeeded.
struct Outcome {
  std::string error;
  bool succeeded() const { return error.empty(); }
};

/// A ticket for work that was given to a queue. Copies stand for the same work.
class Completion {
 public:
  /// Whether the work has ended. Any thread.
  bool is_done() const;

  /// Sleeps until the work has ended. Any thread but the queue's own.
  const Outcome& wait() const;

 private:
  friend class Queue;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// Runs pieces of work one after the other, in the order in which they were given, apart from the
/// threads that give them; two queues run at the same time. A stream of a GPU, or a thread.
class Queue {
 public:
  virtual ~Queue() = default;

  /// Copies `size` bytes. Both sides stay valid until the completion.
  Completion copy(std::byte* destination, const std::byte* source, Bytes size);

  /// Runs a function on the host once everything before it has ended. It may not wait for this
  /// queue.
  Completion run(std::function<Outcome()> work);

  /// Lets what comes next in this queue start only after `earlier`, of whichever queue, has ended.
  void wait_for(const Completion& earlier);

 protected:
  /// Ends a completion; for backends.
  static void finish(const Completion& completion, Outcome outcome);

 private:
  Completion make_completion() const;
  virtual void do_copy(std::byte* destination, const std::byte* source, std::size_t size,
                       const Completion& completion) = 0;
  virtual void do_run(std::function<Outcome()> work, const Completion& completion) = 0;
  virtual void do_wait_for(const Completion& earlier) = 0;
};

/// Bytes of a device's memory; for one that shares the memory of the host, the host's.
struct MemoryInfo {
  Bytes total;
  Bytes free;
};

/// A device that holds tensors. All methods from any thread.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  ///< "cpu", "cuda:0"
  virtual MemoryInfo memory() const = 0;

  /// Memory of the device, aligned to 2 MiB. Throws Error with size and device when there is none.
  virtual std::byte* allocate(Bytes size) = 0;
  virtual void release(std::byte* memory, Bytes size) noexcept = 0;

  /// A new queue, named for debuggers and traces. It ends its work before it dies.
  virtual std::unique_ptr<Queue> make_queue(const std::string& name) = 0;
};

/// The CPU as a device: its memory is the host's, its queues are threads.
std::unique_ptr<Device> make_cpu_device();

}  // namespace spillway::device
