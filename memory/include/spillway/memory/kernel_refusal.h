#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "spillway/base/bytes.h"
#include "spillway/base/own_descriptors.h"

namespace spillway::memory {

/// Tells why the kernel refused this process a call that asks for memory, address space or a
/// thread: the limit that stands in the way with its value and how to lift it, a filter of system
/// calls, or the plain meaning of `error` (an errno value). `wanted`: bytes of address space that
/// the call asked for. Looks at the limits as they are now, so ask at once. Any thread.
std::string why_refused(int error, Bytes wanted);

/// Writes the same into `text`, cut to its size and ended by a zero. Takes no lock and allocates
/// nothing, so a signal handler may call it.
void write_why_refused(int error, Bytes wanted, std::span<char> text);

/// Tells why no thread could be started (EAGAIN of pthread_create). Any thread.
std::string why_no_thread();

/// Makes a table of descriptors beside the program's. Throws UnsupportedError that tells why no
/// thread could be started for it. Any thread.
std::shared_ptr<OwnDescriptors> make_own_descriptors();

}  // namespace spillway::memory
