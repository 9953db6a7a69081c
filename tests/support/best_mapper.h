#pragma once

#include <stdexcept>

#include "spillway/memory/frame_mapper.h"

namespace spillway {

/// The best mapper here: what the mappers have in common is tested where they are.
inline memory::MapperKind best_mapper() {
  for (const memory::MapperProbe& probe : memory::probe_mappers())
    if (probe.is_viable) return probe.kind;
  throw std::runtime_error("no mapper works here");
}

}  // namespace spillway
