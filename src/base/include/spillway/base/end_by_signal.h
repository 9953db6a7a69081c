#pragma once

namespace spillway {

/// Prints "[spillway] error: WHAT" and, unless `error` is 0, what that errno means; then the
/// process dies by `signal_number`. Any thread, signal handlers and forked children too:
/// async-signal-safe.
[[noreturn]] void end_by_signal(int signal_number, const char* what, int error = 0);

}  // namespace spillway
