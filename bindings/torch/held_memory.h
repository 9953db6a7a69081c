#pragma once

#include <cstddef>

namespace spillway::torch_binding {

/// Brings tensor memory in for a system call and holds it: `hold_memory` of SpillwayHooks. At most
/// a sixteenth of the budget, so that a call that blocks does not stand in the way of operators.
/// Where the memory cannot come, says so once and holds nothing: the call itself then fails.
std::size_t hold_memory(const void* memory, std::size_t size, int is_filled, void** token);
void release_memory(void* token);

}  // namespace spillway::torch_binding
