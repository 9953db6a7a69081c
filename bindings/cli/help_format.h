#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace spillway::cli {

/// Breaks text at blanks so that no line exceeds `width`; each line starts with `indent` blanks.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width = 80);

/// Lays help out for terminals of 80 columns: an option, and below it what it means.
class HelpFormat final : public CLI::Formatter {
 public:
  explicit HelpFormat(std::string usage) : usage_(std::move(usage)) {}

  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;

 private:
  std::string usage_;
};

}  // namespace spillway::cli
