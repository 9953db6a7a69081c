#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "spillway/memory/frame_mapper.h"

namespace spillway {

/// By a raw system call: the sanitizers turn mlock into nothing. False with errno where it is
/// limited. What is locked does not move under all mappers.
inline bool lock_in_memory(std::byte* first, std::size_t pages) {
  return ::syscall(SYS_mlock, first, memory::kPageBytes * pages) == 0;
}

}  // namespace spillway
