#pragma once

#include <functional>
#include <string>

#include "spillway/memory/frame_mapper.h"

namespace spillway::runtime {

/// Facts that `choose_mapper` decides by.
struct MapperSurroundings {
  std::function<memory::MapperProbe(memory::MapperKind)> probe;
  bool is_under_valgrind = false;
  bool is_traced = false;  ///< By a debugger, or by what else uses ptrace.
};

/// Those of this process.
MapperSurroundings mapper_surroundings();

/// The mapper of that name, or for "auto" the first one, best first, whose probe succeeds; what
/// comes behind it is not probed. Says which line a debugger needs before something traps. Throws
/// UnsupportedError with the reasons where none works, ConfigError for an unknown name.
memory::MapperKind choose_mapper(const std::string& requested,
                                 const MapperSurroundings& surroundings);

}  // namespace spillway::runtime
