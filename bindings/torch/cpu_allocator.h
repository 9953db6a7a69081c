#pragma once

#include <c10/core/Allocator.h>

#include "spillway/runtime/runtime.h"

namespace c10 {
struct StorageImpl;
}

namespace spillway::torch_binding {

/// Makes LibTorch's CPU tensors live in Spillway's memory from now on. Storages that exist keep
/// theirs. Call once, before a second thread uses LibTorch; `runtime` lives as long as the process.
void install_cpu_allocator(runtime::Runtime& runtime);

/// Of all memory that the installed allocator hands out.
c10::DeleterFnPtr cpu_allocator_deleter();

/// Turns the allocator into a plain one, in a forked child: new blocks come from the heap, paged
/// ones are left to the end of the process. A child whose own blocks exceed a quarter of the budget
/// is told of, once.
void detach_cpu_allocator() noexcept;

/// Warns once when the program has put an allocator of its own in the place of Spillway's: what
/// that makes is beyond the budget. Names its type.
void tell_of_other_allocator();

/// Warns once, as above, or when a storage of a size that could spill was made by LibTorch's own
/// allocator: it is older than Spillway, and no budget counts it. For storages that the runtime
/// does not know.
void tell_of_older_storage(const c10::StorageImpl& storage);

}  // namespace spillway::torch_binding
