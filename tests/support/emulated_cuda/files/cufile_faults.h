#pragma once

/// What the emulated libcufile.so.0 has beyond cuFile, for tests. Any thread.
extern "C" {

/// What fails from now on, as EMU_CUFILE_FAULTS has it: a list of `open`, `register:N`,
/// `read:N`, `write:N` (the Nth one from now on, and all after it) and `short:N` (the Nth one, of
/// either kind, moves half of its bytes), with commas. Empty: nothing.
void emu_cufile_fail(const char* faults);

/// Bytes that were read into memory of devices so far, or written from there.
unsigned long long emu_cufile_moved(int writes);
}
