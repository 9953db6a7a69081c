#pragma once

#include <span>

#include "spillway/runtime/runtime.h"
#include "spillway/swap/host_work.h"

namespace spillway::runtime {

/// Storages of a device for a computation of the host, outside of all operators of that device: it
/// is neither learned nor recorded. One thread.
class HostWorkspace {
 public:
  explicit HostWorkspace(Runtime& runtime) : runtime_(runtime) {}

  /// See swap::HostWork; prepares the writes as `Runtime::before_write`. Throws as that.
  bool hold(swap::HostHold& hold, std::span<const swap::HostUse> uses);

  /// While one lives, this thread allocates storages of the device that the host is going to fill:
  /// they need no room there.
  class Allocations {
   public:
    explicit Allocations(Runtime& runtime);
    ~Allocations();
    Allocations(const Allocations&) = delete;
    Allocations& operator=(const Allocations&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  Runtime& runtime_;
};

}  // namespace spillway::runtime
