#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/runtime/settings/settings.h"

namespace CLI {
class App;
}

namespace spillway::cli {

/// Settings as options of a command.
class SettingOptions {
 public:
  /// Adds --<key> for each of `keys`, or for every setting but `without` when that is empty. This
  /// object must outlive the parsing.
  void add_to(CLI::App& app, const std::vector<std::string_view>& keys = {},
              const std::vector<std::string_view>& without = {});

  /// What was given on the command line, as it was written.
  runtime::NamedTexts given() const;

 private:
  struct Value {
    const runtime::SettingInfo* info;
    std::string text;
    bool is_given = false;
  };
  std::vector<std::unique_ptr<Value>> values_;
};

/// Throws ConfigError for an option that the command does not have, with the nearest one's name,
/// that lacks its value, or that has one too many: CLI11's own words for it name no next step.
void check_options(const CLI::App& app, const std::vector<std::string>& words);

/// Throws ConfigError for a positional argument that is missing after parsing.
void require_positionals(const CLI::App& app);

/// Throws ConfigError for arguments that no option took.
void refuse_extras(const CLI::App& app);

}  // namespace spillway::cli
