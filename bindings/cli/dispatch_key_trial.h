#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "findings.h"

namespace spillway::cli {

/// The command's word for the trial, which `doctor` starts as a process of its own: LibTorch and
/// the core are loaded there, which may crash or hang. Not for users.
inline constexpr std::string_view kTrialCommand = "try-dispatch-key";

/// Tries which dispatch key a run would take, with that LibTorch and that core, in a child process
/// of `command` (the path of this program).
Finding try_dispatch_key(const std::string& command, const std::string& torch,
                         const std::string& core, const std::string& requested);

/// The child: words are the paths of LibTorch and the core, and the requested key. Prints the key's
/// name or what is wrong; returns an exit code, and does not leave static objects of LibTorch to be
/// destroyed.
int run_trial(const std::vector<std::string>& words);

}  // namespace spillway::cli
