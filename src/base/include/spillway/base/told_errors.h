#pragma once

#include <cstdint>

namespace spillway {

/// How many errors the log has told so far. Any thread.
std::uint64_t errors_told();

}  // namespace spillway
