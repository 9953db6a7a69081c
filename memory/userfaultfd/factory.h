#pragma once

#include <memory>

#include "spillway/memory/frame_mapper.h"

namespace spillway::memory::userfaultfd {

/// Which accesses to empty pages are served.
enum class Scope {
  kUserAndKernel,  ///< System calls on spilled memory work. Needs privilege.
  kUserOnly,       ///< System calls on spilled memory end with EFAULT.
};

/// Throws UnsupportedError with the reason and the way to mend it.
std::unique_ptr<FrameMapper> make_mapper(Scope scope);

}  // namespace spillway::memory::userfaultfd
