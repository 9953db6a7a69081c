#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "spillway/base/clock.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/swap/swap_engine.h"

namespace spillway::swap {

/// An engine with two pages on disk, in memory really: one comes when it is touched, the other one
/// only when told. So an access waits, for as long as a test wants.
class HeldPage {
 public:
  static constexpr std::uint64_t kHeldWord = 41;
  static constexpr std::uint64_t kFreeWord = 42;

  explicit HeldPage(memory::MapperKind mapper);
  ~HeldPage();  ///< Lets go.
  HeldPage(const HeldPage&) = delete;
  HeldPage& operator=(const HeldPage&) = delete;

  std::byte* held() const { return held_; }
  /// What they begin with: kHeldWord, kFreeWord. Comes when the page does.
  std::uint64_t read_held() const;
  std::uint64_t read_free() const;

  void await_access();  ///< Until somebody waits for the held page. Any thread.
  void let_go();        ///< Any thread.

  SwapEngine& engine() { return *engine_; }

  /// What the store and the test tell each other of the first read.
  struct FirstRead {
    std::atomic<bool> has_come{false};
    std::atomic<bool> may_go{false};
  };

 private:
  FirstRead first_read_;
  SteadyClock clock_;
  std::unique_ptr<SwapEngine> engine_;
  std::byte* held_ = nullptr;
  std::byte* free_ = nullptr;
};

}  // namespace spillway::swap
