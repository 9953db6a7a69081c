#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "spillway/base/autograd_facts.h"
#include "spillway/base/clock.h"
#include "spillway/device/event.h"
#include "spillway/pipeline/balance/balancer.h"
#include "spillway/runtime/runtime.h"

namespace spillway::split {

/// What forward and backward of the units of a model take on this rank, step by step: by the clock
/// of the host, and by moments of a GPU where that computes. Any thread.
class UnitTimes {
 public:
  /// From now on moments of that GPU are noted. The runtime outlives this.
  void measure(runtime::Runtime& gpu) { gpu_.store(&gpu, std::memory_order_release); }
  /// The moment that its default stream comes to; none where it is not measured.
  std::optional<device::Event> moment() const;

  // Of a call.
  void add(std::uint32_t unit, OpPhase phase, Duration time);
  void add(std::uint32_t unit, OpPhase phase, device::Event from, device::Event to);

  /// Which step's times are wanted where a step ends. A GPU has then been told of the step's last
  /// operators and has not run them, and nobody waits for it.
  enum class Step { kThatEnds, kTheOneBefore };
  /// Of so many units; none are known (zeros) where the GPU has not come to the end of them. The
  /// next step begins.
  std::vector<pipeline::UnitSeconds> end_step(std::size_t units, Step wanted);

 private:
  struct Pair {
    std::uint32_t unit = 0;
    OpPhase phase{};
    device::Event from, to;
  };
  struct Measured {
    std::vector<pipeline::UnitSeconds> seconds{};
    std::vector<Pair> on_gpu{};

    void add(std::uint32_t unit, OpPhase phase, Duration time);
    bool add_gpu();
  };

  std::atomic<runtime::Runtime*> gpu_{nullptr};
  std::mutex mutex_;
  Measured now_, before_;
};

}  // namespace spillway::split
