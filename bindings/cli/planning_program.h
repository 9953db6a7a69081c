#pragma once

#include <string>
#include <vector>

namespace spillway::cli {

/// The program that plans, beside the command: it takes longer to compile than all that runs a
/// trainer, and nobody who runs one needs it.
inline constexpr const char* kPlanningProgram = "spillway-planning";

/// Becomes that program, with a command of its own as the first of `words`. Throws ConfigError when
/// it is not beside the program at `command_path`, with how to get it, or cannot be started.
[[noreturn]] void become_planning_program(const std::string& command_path,
                                          std::vector<std::string> words);

}  // namespace spillway::cli
