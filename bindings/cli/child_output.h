#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::cli {

/// How a program that was run has ended.
struct ChildOutcome {
  std::string output;  ///< Text that it wrote to its standard output and error output.
  std::string ending;  ///< "exit code 3", "signal 11 (Segmentation fault)"; empty: without failure.
};

/// Runs a program (looked up in PATH) without input, to its end. An outcome with the reason when it
/// could not be started.
ChildOutcome outcome_of(const std::vector<std::string>& command);

/// The same, but gives only what it wrote to its standard output, or nothing when it could not be
/// started or failed. Its error output is discarded.
std::optional<std::string> output_of(const std::vector<std::string>& command);

/// The words as `exec` takes them; they must outlive what is returned.
std::vector<char*> exec_arguments(const std::vector<std::string>& words);

/// The rest of an output behind a mark, as one line; empty without the mark.
std::string behind(std::string_view mark, const std::string& output);

/// Ends a child with an answer behind a mark. Does not leave static objects of libraries to be
/// destroyed.
[[noreturn]] void answer(std::string_view mark, const std::string& text, int code);

std::string last_line(std::string output);

}  // namespace spillway::cli
