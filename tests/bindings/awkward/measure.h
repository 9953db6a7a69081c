#pragma once

#include <cstdint>
#include <string>

namespace awkward {

/// Counts what the operators of this process use, for choosing the sizes of a case. Only storages
/// of 1 MiB and more count. Call before the first tensor; for the whole process, once.
void start_measuring();

/// "peak <MiB> largest operator <MiB> (name)", as seen so far.
std::string measurement();

}  // namespace awkward
