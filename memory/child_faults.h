#pragma once

#include <cstddef>

#include "spillway/memory/frame_mapper.h"

namespace spillway::memory {

/// Addresses that a forked child inherits, some of them sealed.
struct InheritedRegion {
  std::byte* begin = nullptr;
  std::size_t size = 0;
  AccessSink* sink = nullptr;       ///< Serves accesses to sealed pages, as reads.
  void (*cannot_read)() = nullptr;  ///< Ends the process where a mapped file cannot be read.
};

/// Has accesses to sealed pages of the region served from now on, beside those of other regions.
/// In a forked child only, by its one thread.
void report_in_child(const InheritedRegion& region);

}  // namespace spillway::memory
