#pragma once

#include <signal.h>

namespace spillway::memory {

/// Does with a signal that is not ours what `previous`, whose place our handler took, would have
/// done: its function runs under the mask that it asked for; a signal that somebody sent is ignored
/// where that was wished; else the default action is restored and taken. Inside a handler only,
/// with the handler's own arguments. Async-signal-safe.
void hand_on_signal(const struct sigaction& previous, int signal_number, siginfo_t* info,
                    void* context);

}  // namespace spillway::memory
