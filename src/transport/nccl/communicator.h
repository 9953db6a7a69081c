#pragma once

#include <memory>
#include <optional>
#include <string>

#include "library.h"
#include "spillway/base/clock.h"

namespace spillway::transport::nccl {

/// A communicator of NCCL whose calls never wait for other ranks. One thread, on which the device
/// is the current one.
class Communicator {
 public:
  /// Begins to meet the other ranks. Throws TransportError where NCCL refuses.
  Communicator(const Library& library, int ranks, const UniqueId& id, int rank);
  /// Those ranks of `parent` that give the same color, in the order of their keys; null for
  /// kNoColor. Waits for the others for so long. Throws as the one above; `parent` may still be in
  /// the split then, and is good for nothing more.
  static std::unique_ptr<Communicator> split(Communicator& parent, int color, int key,
                                             Duration limit);
  /// Ends what is under way on the device.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Comm get() const { return comm_; }

  /// Whether a call has come to its end, on this rank; the next one may not come before. Throws
  /// TransportError where NCCL has failed, now or with another rank.
  bool is_ready() const;
  /// Throws TransportError where NCCL has failed.
  void check_others() const { static_cast<void>(is_ready()); }
  /// Throws TransportError where that takes longer.
  void wait_until_ready(Duration limit, const char* what) const;
  /// What a call of NCCL has returned: throws TransportError where it failed.
  void check(Result result, const char* what) const;

  /// All ranks of it have come to their ends: waits for the others for so long, and lets go of it.
  void end(Duration limit);

 private:
  Communicator(const Library& library, Comm comm) : library_(library), comm_(comm) {}

  const Library& library_;
  Comm comm_ = nullptr;
};

}  // namespace spillway::transport::nccl
