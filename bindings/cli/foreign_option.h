#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace spillway::cli {

// An option that a command does not have, and others may. `table` is what the command prints for
// kHelpTable; that of the others is asked for.

/// Throws ConfigError for the one of `unknown`, which has some, that says most: with what the
/// command calls it, the other commands that have it, or the name of its own that is nearest. Where
/// what the user wrote has a place in a command with the same arguments, the error has the whole
/// line.
[[noreturn]] void refuse_unknown_options(const nlohmann::ordered_json& table,
                                         const std::vector<std::string>& words,
                                         const std::vector<std::string>& unknown);

}  // namespace spillway::cli
