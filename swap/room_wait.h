#pragma once

#include "engine_state.h"

namespace spillway::swap {

/// One wait of one thread for frames, from its first look to its end. Whoever waits in vain while
/// others wait too, or while nothing moves, takes what the others hold and is served first; they
/// stand back until this wait has ended. With the mutex held, but for the waiting itself.
class SwapEngine::State::RoomWait {
 public:
  /// `within`: the set that holds its pages meanwhile, if any. `waited` counts the time.
  RoomWait(State& state, Lock& lock, const PinSet* within, Duration& waited);
  ~RoomWait();
  RoomWait(const RoomWait&) = delete;
  RoomWait& operator=(const RoomWait&) = delete;

  /// Somebody else is to be served first.
  bool stands_back() const {
    return state_.first_in_line_ != nullptr && state_.first_in_line_ != this;
  }

  /// Waits until something has changed. `missing`: frames that are wanted beyond those that are
  /// free; `fresh`: pages that will be held beside those of `within`. Returns false, at once, when
  /// waiting is in vain.
  [[nodiscard]] bool wait(std::size_t missing, std::size_t fresh);

 private:
  bool progress_is_possible();
  bool is_out_of_patience();
  bool late_uses_may_end();
  bool tells_of_work();
  bool take_from_others(std::size_t missing, std::size_t fresh);
  bool waits_for_kernel();
  bool asks_others();

  State& state_;
  Lock& lock_;
  const PinSet* within_;
  Duration& waited_;
  std::uint64_t refusals_;  ///< As of the latest look.
  bool has_asked_others_ = false;
  std::optional<TimePoint> pinned_by_kernel_since_;
  TimePoint next_attempt_;   ///< At what the kernel keeps.
  std::uint64_t wakes_ = 0;  ///< As of `unchanged_since_`.
  std::optional<TimePoint> unchanged_since_;
  std::size_t ended_uses_ = 0;  ///< As of `no_use_ended_since_`.
  std::optional<TimePoint> no_use_ended_since_;
  bool is_told_ = false;
};

}  // namespace spillway::swap
