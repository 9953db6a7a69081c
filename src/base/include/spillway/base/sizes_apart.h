#pragma once

#include <string>

#include "spillway/base/bytes.h"

namespace spillway {

/// Two sizes for one sentence.
struct SizesApart {
  std::string first;
  std::string second;
};

/// As `to_string` has them, but in bytes where that shows different sizes as equal ones: "needs
/// 1.20 GiB and has 1.20 GiB" explains nothing.
SizesApart sizes_apart(Bytes first, Bytes second);

}  // namespace spillway
