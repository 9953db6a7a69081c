#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "bounced_transport.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "thread_ranks.h"

namespace spillway::transport {

/// How many ranks of `wanted` have a GPU of their own.
inline std::uint32_t ranks_with_a_gpu(std::uint32_t wanted) {
  return std::min(wanted,
                  static_cast<std::uint32_t>(device::cuda_backend().probe().devices.size()));
}

inline std::unique_ptr<device::Device> open_gpu(std::uint32_t index) {
  return device::open_device({device::DeviceKind::kCuda, static_cast<std::uint16_t>(index)},
                             std::array{device::cuda_backend()});
}

/// Ranks as threads, each with a GPU of its own.
class NcclRanks {
 public:
  /// What a rank has.
  struct Member {
    Transport& host;
    NcclTransport& transport;
    device::Device& device;
  };
  using Body = std::function<void(const Member&)>;

  explicit NcclRanks(std::uint32_t ranks = 4, NcclOptions options = {})
      : wanted_(ranks), options_(std::move(options)), threads_(ranks_with_a_gpu(ranks)) {
    options_.silence = std::chrono::hours(1);  // A busy machine may be late with any thread.
  }

  /// Skips the case where there are not enough GPUs: a suite can do with two of them.
  void run_members(const Body& body, std::uint32_t least = 0) {
    const std::uint32_t ranks = ranks_with_a_gpu(wanted_);
    if (ranks < (least == 0 ? wanted_ : least)) {
      const std::string why = device::cuda_backend().probe().reason;
      GTEST_SKIP() << wanted_ << " GPUs are needed: " << (why.empty() ? "there are fewer" : why);
    }
    threads_.run([&](Transport& host) {
      const auto gpu = open_gpu(host.rank().value());
      const auto transport = make_nccl_transport(host, *gpu, options_);
      body({host, *transport, *gpu});
    });
  }

  ThreadRanks& threads() { return threads_; }

 private:
  const std::uint32_t wanted_;
  NcclOptions options_;
  ThreadRanks threads_;
};

/// For the suites of every transport.
class BouncedRanks {
 public:
  void run(const std::function<void(Transport&)>& body) {
    ranks_.run_members(
        [&](const NcclRanks::Member& member) {
          BouncedTransport bounced(member.transport, member.device);
          body(bounced);
        },
        2);
  }
  void start(std::function<void()> work) { ranks_.threads().start(std::move(work)); }

 private:
  NcclRanks ranks_;
};

}  // namespace spillway::transport
