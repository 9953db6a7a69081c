#pragma once

#include <string>

namespace spillway::split {

/// Where Python's functions are on this thread, innermost first, at most eight of them, on one
/// line, without those of torch but for the innermost; empty where no Python runs. Takes no lock of
/// Python's: in a handler of a fault, too.
std::string python_frames();

}  // namespace spillway::split
