#pragma once

#include <optional>
#include <string>
#include <vector>

namespace spillway::cli {

/// Runs a program (looked up in PATH) without input and gives what it wrote to its standard output,
/// or nothing when it could not be started or failed. Its error output is discarded.
std::optional<std::string> output_of(const std::vector<std::string>& command);

}  // namespace spillway::cli
