#pragma once

namespace spillway::preload {

/// The definition of the symbol `name` that the one in this library stands before. `shown`: what
/// the symbol is in words, `caller`: an address in the library that wants it. Ends the process with
/// a sentence where nobody has it. Slow: ask once.
void* next_definition(const char* name, const char* shown, const void* caller);

}  // namespace spillway::preload
