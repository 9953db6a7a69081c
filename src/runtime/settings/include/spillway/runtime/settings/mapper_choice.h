#pragma once

#include <functional>
#include <string>
#include <vector>

#include "spillway/memory/frame_mapper.h"

namespace spillway::runtime {

/// The mapper of that name, or for "auto" the best one that `probe` finds viable. Throws
/// ConfigError for an unknown name, and UnsupportedError with every reason where none is viable.
memory::MapperKind choose_mapper(const std::string& requested,
                                 const std::function<std::vector<memory::MapperProbe>()>& probe);

}  // namespace spillway::runtime
