#include "help_format.h"

namespace spillway::cli {

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string result;
  std::size_t column = 0;
  while (!text.empty()) {
    const auto end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    if (column > 0 && column + 1 + word.size() > width) {
      result += '\n';
      column = 0;
    }
    if (column == 0) {
      result.append(indent, ' ');
      column = indent;
    } else {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return result + "\n";
}

std::string HelpFormat::make_usage(const CLI::App* /*app*/, std::string /*name*/) const {
  return "\nUsage: " + usage_ + "\n";
}

std::string HelpFormat::make_description(const CLI::App* app) const {
  return wrapped(app->get_description(), 0);
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = is_positional ? option->get_name(true) : option->get_name(false, true);
  if (!is_positional && option->get_items_expected_max() > 0 && !option->get_type_name().empty())
    name += " " + option->get_type_name();
  return "  " + name + "\n" + wrapped(option->get_description(), 6);
}

}  // namespace spillway::cli
