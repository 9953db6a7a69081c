#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace trainer {

/// Parses the command line and runs `body`. Returns the exit code: 0 for success and `--help`, 2
/// for bad input, 1 for everything else that was thrown; the message goes to standard error.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& body);

}  // namespace trainer
