#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "setting_values.h"
#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

/// Asks for the help of a command, or of all, as JSON, for completions and manual pages.
inline constexpr std::string_view kHelpTable = "--help=table";

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

  /// Options that are added from here on stand under this heading of the help.
  void begin_group(const std::string& heading);

  /// "--name VALUE", at most once; `field` gets the value. The help shows the kind's name for it.
  template <typename Field, typename Value>
  void add(const std::string& name, Field& field, const ValueKind<Value>& kind,
           const std::string& meaning) {
    add_reader(
        name, kind.type, meaning,
        [name, &field, read = kind.read](const std::string& text) { field = read(name, text); },
        kind.names);
  }

  /// The same where more than a field depends on the value: `read` gets its text. Shells offer
  /// `names` for NAME in the type.
  void add_reader(const std::string& name, const std::string& type, const std::string& meaning,
                  std::function<void(const std::string& text)> read,
                  const std::vector<std::string>& names = {});

  /// The same for a text of any form.
  void add_text(const std::string& name, std::string& word, const std::string& type,
                const std::string& meaning);

  /// "--name" without a value.
  void add_flag(const std::string& name, bool& is_given, const std::string& meaning);

  /// One of the options must be given; `question` is what their absence leaves open.
  void require(const std::vector<std::string>& names, const std::string& question);

  /// Each of `names` makes sense only beside one of `others`.
  void needs(const std::vector<std::string>& names, const std::vector<std::string>& others);

  /// None of `others` may stand beside `name`; `reason` continues "has no place beside NAME, ".
  void excludes(const std::string& name, const std::vector<std::string>& others,
                const std::string& reason);

  enum class Need { kRequired, kOptional };

  /// A word without an option before it. Its name is in capitals.
  void add_argument(const std::string& name, std::string& word, const std::string& meaning,
                    Need need);

  /// --<key> for each of `keys`, or for every setting but `without` when that is empty.
  void add_settings(const std::vector<std::string_view>& keys = {},
                    const std::vector<std::string_view>& without = {});

  /// Names that an option takes, with what each means: a list below the options.
  void add_names(const std::string& heading, const runtime::NamedTexts& names);

  /// The first option of a group that was given, "--budget 4GiB"; empty: none.
  std::string given_in(const std::string& heading) const;

  /// The options that were given, in the order of the help, and their values as they were written;
  /// those of one group are left out.
  runtime::NamedTexts given_outside(const std::string& heading) const;

  /// The settings that were given, as they were written.
  runtime::NamedTexts given_settings() const;

  /// Reads the words of a command. False when help was asked for and printed, as text or, by
  /// kHelpTable alone, as JSON. Throws ConfigError
  /// for an option that the command does not have, as `refuse_unknown_options`; for one that lacks
  /// its value, or has one too many; for what `needs`, `excludes`, `require` and the kinds of
  /// values refuse; and for an argument that is missing, or that nothing takes. `all`: with the
  /// program that stands behind these words, for the line that a refusal suggests.
  bool parse(const std::vector<std::string>& words, const std::vector<std::string>& all = {});

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Runs a command over the words of the program and gives its exit code. What it throws, and
/// standard output that cannot be written, becomes an error line.
int exit_code_of(int (*command)(const std::vector<std::string>& words), int count, char** words);

}  // namespace spillway::cli
