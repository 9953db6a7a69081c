#pragma once

#include <cstddef>

#include "spillway/memory/frame_mapper.h"

namespace spillway::memory::signal {

/// Serves the SIGSEGV and SIGBUS of one stretch of addresses while it lives; all others go to the
/// handlers that were there before. The process-wide handler is installed with the first and
/// removed with the last instance.
class FaultHandler {
 public:
  /// Throws UnsupportedError when too many instances live.
  FaultHandler(std::byte* begin, std::byte* end, FaultSink& sink);
  FaultHandler(const FaultHandler&) = delete;
  FaultHandler& operator=(const FaultHandler&) = delete;
  ~FaultHandler();

  /// Puts the handler in front again when a library has installed its own since.
  static void stay_in_front();

 private:
  std::size_t watch_;
};

}  // namespace spillway::memory::signal
