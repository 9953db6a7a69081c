#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

/// The options of one command: their help, and what a user gave. Alone in knowing CLI11, whose
/// headers take longer to compile than all that includes this one. All words that are added must
/// outlive the parsing.
class CommandLine {
 public:
  /// `usage` is what stands behind "Usage:", `examples` what ends the help.
  CommandLine(std::string name, std::string_view description, std::string usage,
              std::string_view examples);
  CommandLine(CommandLine&&) noexcept;
  ~CommandLine();

  /// "--name VALUE", at most once. `type` is what the help shows for the value.
  void add_text(const std::string& name, std::string& word, const std::string& type,
                const std::string& meaning);

  /// An option of which the help says nothing.
  void add_hidden_text(const std::string& name, std::string& word);

  /// "--name" without a value.
  void add_flag(const std::string& name, bool& is_given, const std::string& meaning);

  enum class Need { kRequired, kOptional };

  /// A word without an option before it. Its name is in capitals.
  void add_argument(const std::string& name, std::string& word, const std::string& meaning,
                    Need need);

  /// --<key> for each of `keys`, or for every setting but `without` when that is empty.
  void add_settings(const std::vector<std::string_view>& keys = {},
                    const std::vector<std::string_view>& without = {});

  /// The settings that were given, as they were written.
  runtime::NamedTexts given_settings() const;

  /// Reads the words of a command. False when help was asked for and printed. Throws ConfigError
  /// for an option that the command does not have, with the nearest one's name; for one that lacks
  /// its value, or has one too many; and for an argument that is missing, or that nothing takes.
  bool parse(std::vector<std::string> words);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Runs a command over the words of the program and gives its exit code. What it throws, and
/// standard output that cannot be written, becomes an error line.
int exit_code_of(int (*command)(const std::vector<std::string>& words), int count, char** words);

}  // namespace spillway::cli
