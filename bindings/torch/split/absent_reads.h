#pragma once

namespace spillway::split {

/// From now on `tell` is called where the program touches an address without memory, on the thread
/// that does, in a handler of SIGSEGV. If it returns, the signal goes on to whoever had it before,
/// as all others do. Once per process.
void watch_absent_reads(void (*tell)(const void* address) noexcept);

}  // namespace spillway::split
