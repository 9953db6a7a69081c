#pragma once

namespace spillway::preload {

/// Loads the core that fits the LibTorch of this process, once; does nothing in a process without
/// LibTorch. On failure prints one sentence and, under `spillway run`, ends the process with exit
/// code 2. Any thread; a second caller does not wait for the first.
void load_core_if_torch_is_here();

/// The same at LibTorch's first allocation, for programs that open LibTorch while they run. Cheap
/// when called again.
void load_core_at_first_allocation();

/// Whether LibTorch was there, and the core that fits it, if any, was tried.
bool is_core_tried();

/// Called at the exit of the process: says so when LibTorch came in a way that nobody saw.
void report_torch_that_came_unseen();

}  // namespace spillway::preload
