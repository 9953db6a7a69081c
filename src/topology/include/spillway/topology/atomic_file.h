#pragma once

#include <string>
#include <string_view>

namespace spillway::topology {

/// Replaces the file at `path` by `text`: readers see the old or the new one, never half of it.
/// Throws IoError with path and reason.
void write_file_at_once(const std::string& path, std::string_view text);

/// All of a file. Throws IoError with path, reason and what to do; with a command in `written_by`
/// that is "(COMMAND writes one)".
std::string text_of_file(const std::string& path, std::string_view written_by = {});

}  // namespace spillway::topology
