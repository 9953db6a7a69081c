#pragma once

#include <functional>
#include <string>
#include <vector>

namespace spillway::cli {

/// An exit code above it is the number of a signal, as in shells.
inline constexpr int kSignalBase = 128;

/// Runs `become` (an exec that returns an exit code where it fails) in a child, hands signals on
/// to it that were sent to this process alone, and waits. Returns the child's exit code; `ended` is
/// asked for it first, with the child's id. Dies by the signal that ended the child.
int run_watched(const std::function<int()>& become,
                const std::function<int(long child, int code)>& ended);

/// Files that `pattern` may name (%p, %r and %d are any, see `expand_stats_path`), each with
/// what changes when it is written: a file that appears or changes is not in an earlier list.
std::vector<std::string> written_states(const std::string& pattern);

}  // namespace spillway::cli
