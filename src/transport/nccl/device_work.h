#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "communicator.h"
#include "operation.h"
#include "spillway/device/device.h"

namespace spillway::transport::nccl {

/// What the device works off for NCCL, one place after the other, on a queue of its own. One
/// thread, on which the device is the current one.
class DeviceWork {
 public:
  using Operations = std::vector<std::shared_ptr<Operation>>;

  /// `wake` is notified when some of it has ended.
  DeviceWork(const Library& library, device::Device& device, std::unique_ptr<Communicator> job,
             std::shared_ptr<Notifier> wake);
  /// Ends what is under way.
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  Communicator& job() { return *job_; }
  void add_group(std::uint32_t group, std::unique_ptr<Communicator> communicator);

  /// At the next place, at once: all of one circle.
  void add(Operations operations);

  /// Gives the device what it may have next, and returns what has ended since. Throws
  /// TransportError where NCCL or the device has failed.
  Operations advance();
  /// Those that are given to the device now: what has ended may be waited for by `moment_of`.
  Operations take_begun() { return std::exchange(begun_, {}); }

  bool is_idle() const { return waiting_.empty() && under_way_.empty(); }
  /// Whether NCCL is still busy with a call, and says nothing when it is done.
  bool is_beginning() const { return is_beginning_; }
  bool is_under_way() const { return !under_way_.empty(); }
  /// What the device works on, and so waits for.
  const Operation* oldest() const;
  /// Throws TransportError where NCCL has failed with other ranks.
  void check() const;

  /// All ranks come to it when nothing is left.
  void end(Duration limit);
  /// Ends what is under way, as far as NCCL can, and waits until the device has let go of it: so
  /// long, at most.
  void stop(Duration limit) noexcept;

 private:
  struct Batch {
    Operations operations;
    device::Event moment;
  };

  Communicator& communicator_of(const Operations& operations) const;
  void begin(Batch& batch);
  Result call(const Operation& operation, Comm communicator) const;
  void note_begun(Batch& batch);

  const Library& library_;
  const std::shared_ptr<Notifier> wake_;
  const std::unique_ptr<device::Queue> queue_;
  const std::unique_ptr<device::Queue> ends_;  ///< Tells of ends, so that `queue_` goes on.
  std::unique_ptr<Communicator> job_;
  std::map<std::uint32_t, std::unique_ptr<Communicator>> groups_;
  std::deque<Operations> waiting_;
  std::deque<Batch> under_way_;
  Operations begun_;
  bool is_beginning_ = false;  ///< The last one of `under_way_`.
};

}  // namespace spillway::transport::nccl
