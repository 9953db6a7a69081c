#pragma once

#include <functional>

namespace spillway::runtime {

/// From now on SIGHUP, SIGINT and SIGTERM, where they would end the process by default, first have
/// `last_words` called, once and on a thread of its own; then the process dies by the signal as it
/// would have before. A signal that the program handles or ignores stays the program's, also when
/// it decides so later. Another signal, more than a second after the first, ends the process at
/// once. `last_words` must not throw. Call once per process; throws std::system_error.
void watch_ending_signals(std::function<void()> last_words);

/// Gives the signals back their default in a forked child, which has no thread that would answer.
void unwatch_ending_signals_in_child() noexcept;

}  // namespace spillway::runtime
