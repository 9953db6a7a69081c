#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine_state.h"

namespace spillway::swap {

/// What the host works on in place of the device: brings pages out and into host memory of the
/// store. Made anew for each question; what it remembers is in `HostReads`. `_locked`: to be called
/// with the engine's mutex held.
class SwapEngine::State::WayToHost {
 public:
  explicit WayToHost(State& engine) : engine_(engine), host_(engine.store_->facts().host) {}

  // See HostWork.
  bool hold(HostHold& hold, std::span<const HostUse> uses);
  void let_go(HostHold& hold);

  // For the I/O thread.
  bool collect_locked(std::vector<Transfer>& batch);
  void finish_locked(memory::PageIndex index, const TransferResult& result);

 private:
  enum class Stage : std::uint8_t { kReady, kComing, kImpossible };

  Stage bring_locked(memory::PageIndex index, bool fills);
  Stage bring_resident_locked(memory::PageIndex index, bool fills);
  Stage read_locked(memory::PageIndex index);
  bool give_extent_locked(memory::PageIndex index, HostRead& place);
  bool is_held_for_good_locked(StorageId storage) const;
  bool take_locked(HostHold& hold, std::span<const HostUse> uses);
  bool are_coming_locked(std::span<const HostUse> uses) const;
  bool bring_all_locked(Lock& lock, HostHold& hold, std::span<const HostUse> uses,
                        std::uint64_t failures);
  void leave_locked(Lock& lock, std::span<const HostUse> uses);

  State& engine_;
  HostExtents* const host_;  ///< Null: the store has none.
};

}  // namespace spillway::swap
