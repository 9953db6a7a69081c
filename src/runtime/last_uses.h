#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spillway/swap/swap_engine.h"

namespace spillway::runtime {

/// Which operator of a step is the last one to use a storage that the host works on afterwards: in
/// backward as a rule, where a gradient becomes final. What the step before has shown is expected
/// of this one, as long as its operators are the same; so the pages begin their way to host memory
/// when that operator has ended, and not when the update asks for them.
/// Does nothing before the host has worked on something. Any thread.
class LastUses {
 public:
  explicit LastUses(swap::SwapEngine& engine) : engine_(engine) {}

  bool is_on() const noexcept { return is_on_.load(std::memory_order_relaxed); }

  void begin_step() {
    const std::lock_guard lock(mutex_);
    so_far_ = kNothing;
    last_.clear();
    if (!found_.empty()) expected_ = std::exchange(found_, {});
  }

  /// With what the operator has used, then its results, none of which it holds any more.
  void end_op(std::uint64_t signature, std::span<const swap::RangeUse> operands) {
    swap::ResidencyOrders orders;
    note_op(signature, operands, orders);
    if (!orders.write_outs.empty()) engine_.apply(orders);
  }

  /// Bytes that were asked to leave before the host worked on them, had they left already or not.
  Bytes sent() const { return Bytes(sent_.load(std::memory_order_relaxed)); }

  /// The host works on these.
  void note_host(std::span<const swap::HostUse> uses) {
    is_on_.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    for (const swap::HostUse& each : uses) {
      const auto last = last_.find(each.use.storage);
      if (last == last_.end()) continue;  // The host has had it since.
      found_[last->second.so_far].push_back(last->second.operand);
      last_.erase(last);
    }
  }

  void freed(StorageId storage) {
    const std::lock_guard lock(mutex_);
    last_.erase(storage);
  }

 private:
  /// FNV-1a of the signatures of the step's operators so far, which tells them apart.
  static constexpr std::uint64_t kNothing = 0xcbf29ce484222325;
  static constexpr std::uint64_t kPrime = 0x100000001b3;

  struct Use {
    std::uint64_t so_far = kNothing;  ///< With the operator.
    std::size_t operand = 0;
  };
  using Uses = std::unordered_map<std::uint64_t, std::vector<std::size_t>>;  ///< Operands by that.

  void note_op(std::uint64_t signature, std::span<const swap::RangeUse> operands,
               swap::ResidencyOrders& orders) {
    const std::lock_guard lock(mutex_);
    so_far_ = (so_far_ ^ signature) * kPrime;
    for (std::size_t i = 0; i < operands.size(); ++i) last_[operands[i].storage] = {so_far_, i};
    const auto expected = expected_.find(so_far_);
    if (expected == expected_.end()) return;
    for (const std::size_t place : expected->second) {
      if (place >= operands.size()) continue;
      const swap::RangeUse& operand = operands[place];
      orders.write_outs.push_back({operand.storage, operand.pages});
      sent_.fetch_add((engine_.page_size() * operand.pages).count(), std::memory_order_relaxed);
    }
  }

  swap::SwapEngine& engine_;
  std::atomic<bool> is_on_{false};
  std::atomic<std::uint64_t> sent_{0};
  std::mutex mutex_;
  std::uint64_t so_far_ = kNothing;
  std::unordered_map<StorageId, Use> last_;  ///< In this step, and not by the host since.
  Uses found_;                               ///< In this step.
  Uses expected_;                            ///< Of this step, as the last one with an update had.
};

}  // namespace spillway::runtime
