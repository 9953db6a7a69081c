#pragma once

#include "spillway/memory/frame_mapper.h"
#include "spillway/runtime/build_runtime.h"

namespace spillway::runtime {

/// Of a run on a machine of 16 GiB, so much of it available, without measured disks.
inline RunSurroundings surroundings_for_tests(Bytes available) {
  RunSurroundings surroundings;
  surroundings.machine.memory.total = 16_GiB;
  surroundings.machine.memory.available = available;
  surroundings.mappers.probe = &memory::probe_mapper;
  surroundings.directories = surroundings_without_rates();
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer refuses a mapping as large as a run reserves where nothing limits it.
  surroundings.machine.limits.address_space_bytes = (64_GiB).count();
  surroundings.machine.use.address_space_bytes = (1_GiB).count();
#endif
  return surroundings;
}

}  // namespace spillway::runtime
