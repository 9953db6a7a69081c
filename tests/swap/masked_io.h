#pragma once

#include "support/golden_part.h"

namespace spillway::swap {

/// How the files of this machine are read and written differs from machine to machine.
inline void mask_io(GoldenPart& golden) {
  golden.mask(std::regex("\\w+, \\w+ I/O, (\\S+) \\(([^()]+)\\)"),
              "STORE, KIND I/O, $1 (FILE SYSTEM)");
}

}  // namespace spillway::swap
