#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/device/device_span.h"
#include "spillway/device/event.h"

namespace spillway::device {

/// Runs pieces of work one after the other, in the order in which they were given, apart from the
/// threads that give them; two queues run at the same time. A stream of a GPU, or a thread. No call
/// waits for work, except that a GPU may let a copy wait whose host memory is not pinned. Any
/// thread; the order among threads is theirs to make.
///   queue.copy(slab.span(), tensor);
///   later_queue.wait(queue.record());
class Queue {
 public:
  /// `peers`: further devices whose memory it copies to and from.
  explicit Queue(DeviceId device, std::vector<DeviceId> peers = {})
      : device_(device), peers_(std::move(peers)) {}
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  DeviceId device() const { return device_; }

  /// Copies between spans of one size, each on this device, on one of its peers or on the host.
  /// Both stay valid until an event recorded after it is done. Of bytes that change meanwhile any
  /// mixture arrives.
  void copy(DeviceSpan to, DeviceSpan from);

  /// Runs a function on the host once everything before it has ended. It may not wait for this
  /// queue, nor for the function of another one, as a GPU may run all of them on one thread; nor
  /// give work to a device. An exception becomes a failure.
  void run(std::function<Outcome()> work);

  /// The moment when all that was given so far has ended. Failures go with the first event after
  /// them, and do not keep later work from running.
  Event record(Timing timing = Timing::kNone) { return do_record(timing); }

  /// Lets what comes next start only after `event`, of a queue of whichever device. The host does
  /// not wait.
  void wait(const Event& event);

 private:
  virtual void do_copy(DeviceSpan to, DeviceSpan from) = 0;
  virtual void do_run(std::function<Outcome()> work) = 0;
  virtual Event do_record(Timing timing) = 0;
  virtual void do_wait(const std::shared_ptr<const EventState>& event) = 0;

  const DeviceId device_;
  const std::vector<DeviceId> peers_;
};

/// Bytes of a device's memory; for one that shares the memory of the host, the host's.
struct MemoryInfo {
  Bytes total;
  Bytes free;
};

/// What not every device can do.
struct Capabilities {
  bool virtual_memory = false;      ///< Physical memory can move below addresses that stay.
  bool peer_copies = false;         ///< Its queues reach other devices of its kind.
  bool pinned_host_memory = false;  ///< `pin_host` works, as far as limits go.
};

class Device;

/// Memory of a device, given back when this dies, which must be before the device does. Movable.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  DeviceSpan span() const { return span_; }

 private:
  friend class Device;
  DeviceMemory(Device& owner, DeviceSpan span) : owner_(&owner), span_(span) {}
  Device* owner_ = nullptr;
  DeviceSpan span_;
};

/// A device that holds tensors. All methods from any thread.
class Device {
 public:
  Device(DeviceId id, const Capabilities& capabilities) : id_(id), capabilities_(capabilities) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  DeviceId id() const { return id_; }
  const Capabilities& capabilities() const { return capabilities_; }
  MemoryInfo memory() const { return do_memory(); }

  /// Memory of the device, aligned to 2 MiB. Throws Error with size and device when there is none.
  DeviceMemory allocate(Bytes size);

  /// A new queue, named for debuggers and traces. It ends its work before it dies.
  std::unique_ptr<Queue> make_queue(const std::string& name) { return do_make_queue(name); }

  /// Keeps host memory where it is, so that copies to and from the device need no detour. Returns
  /// why that is refused, with the limit; empty: it is done, until `unpin_host` of the same span.
  std::string pin_host(DeviceSpan host);
  void unpin_host(DeviceSpan host) noexcept { do_unpin_host(host); }

 private:
  friend class DeviceMemory;
  virtual MemoryInfo do_memory() const = 0;
  virtual std::byte* do_allocate(Bytes size) = 0;
  virtual void do_release(DeviceSpan memory) noexcept = 0;
  virtual std::unique_ptr<Queue> do_make_queue(const std::string& name) = 0;
  virtual std::string do_pin_host(DeviceSpan host) = 0;
  virtual void do_unpin_host(DeviceSpan host) noexcept = 0;

  const DeviceId id_;
  const Capabilities capabilities_;
};

}  // namespace spillway::device
