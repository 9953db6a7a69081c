#pragma once

#include <memory>
#include <string>

#include "spillway/swap/spill_store.h"

namespace spillway::swap {

/// Remembers an XXH3-64 of every extent when it is written, and ends a read that brings other bytes
/// with EBADMSG, naming `place`. An extent is read in the size in which it was written (EINVAL).
std::unique_ptr<SpillStore> make_verifying_store(std::unique_ptr<SpillStore> child,
                                                 std::string place);

}  // namespace spillway::swap
