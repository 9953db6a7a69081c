#pragma once

#include <functional>
#include <string>

#include "spillway/base/clock.h"

namespace spillway::runtime {

/// From now on SIGHUP, SIGINT and SIGTERM, where they would end the process by default, first have
/// `last_words` called, once and on a thread of its own; then the process dies by the signal as it
/// would have before. A signal that the program handles or ignores stays the program's, also when
/// it decides so later. Another signal, `copies_within` or more after the first, ends the process
/// at once: what comes sooner is a copy, as `timeout`, shells and job systems signal the process
/// and its group. So does the end of `words_within`. An exception that nobody catches, and
/// a crash (SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV with their defaults), has `last_words` called
/// too, for some seconds at most, since the thread may hold what they need; then the process ends
/// as it would have. `last_words` must not throw. Call once per process; throws std::system_error.
///
/// These signals, and SIGQUIT with its default, also end a process whose threads cannot take them:
/// in a system call that waits for memory which a userfaultfd serves, the kernel holds back what
/// has a handler or leaves a core. Unless all threads of the program block them.
void watch_endings(std::function<void()> last_words,
                   Duration copies_within = std::chrono::seconds(1),
                   Duration words_within = std::chrono::seconds(30));

/// From now on an exception of these words that nobody catches ends the process by exit(2), and not
/// by abort: they were told, and what the program has buffered or named for its exit is not lost.
/// After `watch_endings`.
void exit_on_uncaught(const std::string& told);

/// From now on that signal, where it would end the process by default, has `answer` called on the
/// thread of `watch_endings`, which comes before, instead; the process goes on. Not once last words
/// are said. Signals that come while one is answered are answered once. A signal that the program
/// handles or ignores stays the program's, also when it decides so later. A forked child, which a
/// launcher signals together with its parent, passes over it. `answer` must not throw. Call once
/// per process.
void answer_signal(int signal, std::function<void()> answer);
/// Whether that is what such a signal does now.
bool is_answered(int signal) noexcept;

/// Gives the ending signals back their default in a forked child, which has no thread that would
/// answer. Its uncaught exceptions go past the last words without that.
void unwatch_endings_in_child() noexcept;

}  // namespace spillway::runtime
