#pragma once

namespace spillway::preload {

/// Finds the C library's functions that start programs. Once, before main.
void find_program_starters();

}  // namespace spillway::preload
