#include "setting_values.h"

#include <charconv>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/base/transfer_rate.h"

namespace spillway::cli {

namespace {

// "a FILE", "a SIZE, PERCENT% or auto", "one of auto, posix or ram", "a number (GB/s)"
std::string wanted(std::string_view value) {
  if (value == "GB/s" || value == "SECONDS") return message("a number ({})", value);
  const bool is_list_of_names = value.front() >= 'a' && value.front() <= 'z';
  std::string text = is_list_of_names ? "one of " : "a ";
  for (const char letter : value) {
    if (letter == '|')
      text += ", ";
    else
      text += letter;
  }
  const auto last = text.rfind(", ");
  if (last != std::string::npos) text.replace(last, 2, " or ");
  return text;
}

template <typename Number>
std::optional<Number> read_number(const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  return status == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

}  // namespace

const runtime::SettingInfo* setting_behind(const std::string& option) {
  for (const runtime::SettingInfo& info : runtime::setting_catalogue())
    if (option == "--" + std::string(info.key)) return &info;
  return nullptr;
}

void require_value(const std::string& option, std::string_view value, const std::string* next) {
  if (next == nullptr || next->substr(0, 2) == "--")
    throw ConfigError("{} needs {}", option, wanted(value));
}

std::vector<std::string> comma_separated(std::string_view list) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t comma = list.find(',');
    words.emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return words;
    list.remove_prefix(comma + 1);
  }
}

std::optional<double> number_in(const std::string& text) { return read_number<double>(text); }

ValueKind<std::uint32_t> counts(std::uint32_t least, std::uint32_t most) {
  const auto read = [=](const std::string& option, const std::string& text) {
    const auto value = read_number<std::uint32_t>(text);
    if (!value || *value < least || *value > most)
      throw ConfigError("{}: '{}' is not a whole number from {} to {}", option, shown_text(text),
                        least, most);
    return *value;
  };
  return {"COUNT", read};
}

ValueKind<double> numbers(const std::string& type, double least, double most) {
  const auto read = [=](const std::string& option, const std::string& text) {
    const auto value = number_in(text);
    if (!value || !(*value >= least && *value <= most))
      throw ConfigError("{}: '{}' is not a number ({}) from {} to {}", option, shown_text(text),
                        type, least, most);
    return *value;
  };
  return {type, read};
}

ValueKind<Bytes> sizes() {
  return {"SIZE", [](const std::string& option, const std::string& text) {
            try {
              return parse_bytes(text);
            } catch (const ConfigError& error) {
              throw ConfigError("{}: {}", option, error.what());
            }
          }};
}

ValueKind<TransferRate> rates() {
  const ValueKind<double> kind = numbers("GB/s", kLeastTransferRate.bytes_per_second() / 1e9,
                                         kMostTransferRate.bytes_per_second() / 1e9);
  return {kind.type, [kind](const std::string& option, const std::string& text) {
            return TransferRate(1e9 * kind.read(option, text));
          }};
}

}  // namespace spillway::cli
