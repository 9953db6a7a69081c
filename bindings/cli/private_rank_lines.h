#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace spillway::cli {

/// What Spillway says among the error output of a program, with a rank in front of each line: of
/// lines with "[spillway" in them what follows from there. Lines end with '\n' or '\r'.
class SpillwayLines {
 public:
  explicit SpillwayLines(std::string rank) : rank_(std::move(rank)) {}

  /// The lines that have come to their end with this piece of output.
  std::string of(std::string_view piece);
  /// What is left of a line without an end, which is then given one.
  std::string rest();
  /// The last thirty lines that the program wrote itself, for a rank that has failed. Those of
  /// C++ stacks do not count. Nothing where Spillway has told an error, which is why then.
  /// (Where MPI ends the job, or ranks find that the program has ended here alone, they come out at
  /// once: `of`.)
  std::string last_words() const;

 private:
  void take(std::string& shown);
  std::string last_lines(std::string_view beginning) const;

  std::string rank_;
  std::string line_;
  std::deque<std::string> last_;
  bool has_told_error_ = false;
};

/// Writes all of it, and gives up on an error.
void write_all(int file, std::string_view text);

}  // namespace spillway::cli
