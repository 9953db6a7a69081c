#pragma once

#include <cstddef>

#include "spillway/base/bytes.h"

namespace spillway::torch_binding {

// What the core does about system calls on tensors, where the mapper cannot serve them and for
// direct I/O: the members of SpillwayHooks with these names.

std::size_t tensor_bytes(const void* memory, std::size_t size);

/// A sixteenth of the budget, in whole pages: calls of some threads leave room for operators.
std::size_t bytes_at_once(Bytes budget, Bytes page_size);

/// Not inside of an operator, whose own pages might leave no room: it would wait for itself.
void* hold_memory(const void* memory, std::size_t size, int is_filled, int is_direct);
void release_memory(void* token);

}  // namespace spillway::torch_binding
