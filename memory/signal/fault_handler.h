#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "spillway/memory/frame_mapper.h"

namespace spillway::memory::signal {

/// How often each page was made accessible, by which the handler tells progress from an endless
/// trap.
using PageChanges = std::vector<std::atomic<std::uint32_t>>;

/// Serves the SIGSEGV and SIGBUS of the pages from `begin`, one per entry of `changes`, while it
/// lives; all others go to the handlers that were there before. The process-wide handler is
/// installed with the first and removed with the last instance.
class FaultHandler {
 public:
  /// Throws UnsupportedError when too many instances live.
  FaultHandler(std::byte* begin, const PageChanges& changes, AccessSink& sink);
  FaultHandler(const FaultHandler&) = delete;
  FaultHandler& operator=(const FaultHandler&) = delete;
  ~FaultHandler();

  /// Puts the handler in front again when a library has installed its own since.
  static void stay_in_front();

 private:
  std::size_t watch_;
};

}  // namespace spillway::memory::signal
