#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::cli {

/// The program that plans, beside the command: it takes longer to compile than all that runs a
/// trainer, and nobody who runs one needs it.
inline constexpr const char* kPlanningProgram = "spillway-planning";

/// What it serves, beside imports.
inline constexpr std::array<std::string_view, 6> kPlanningCommands{
    "plan", "plan-job", "check", "rebalance", "costs", "simulate"};

/// Becomes that program, with a command of its own as the first of `words`. Throws ConfigError when
/// it is not beside the program at `command_path`, with how to get it, or cannot be started.
[[noreturn]] void become_planning_program(const std::string& command_path,
                                          std::vector<std::string> words);

}  // namespace spillway::cli
