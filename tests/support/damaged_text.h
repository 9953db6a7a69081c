#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace spillway {

/// Visits a text as often as it has numbers, times ten: each number alone becomes one at an end of
/// what counts, sizes and times may be, or just beyond.
template <typename Visit>
void for_each_extreme(const std::string& text, Visit visit) {
  static constexpr std::string_view kDigits = "0123456789";
  static constexpr std::string_view kExtremes[] = {
      "0",          "1",          "-1",    "16777215",         "4294967295",
      "4294967296", "1000000000", "1e300", "9007199254740992", "0.000000000000000000000000000001"};
  for (std::size_t begin = text.find_first_of(kDigits); begin != std::string::npos;) {
    const std::size_t end = text.find_first_not_of("0123456789.eE+-", begin);
    const std::size_t length = std::min(end, text.size()) - begin;
    for (const std::string_view extreme : kExtremes) {
      std::string changed = text;
      visit(changed.replace(begin, length, extreme));
    }
    begin = text.find_first_of(kDigits, begin + length);
  }
}

/// Damages text as files get damaged, and as people edit them. Equal seeds, equal damage.
class DamagedText {
 public:
  explicit DamagedText(std::uint64_t seed) : random_(seed) {}

  std::string operator()(std::string text) {
    for (std::size_t i = 0, times = 1 + pick(3); i < times && !text.empty(); ++i) damage(text);
    return text;
  }

 private:
  std::size_t pick(std::size_t below) { return random_() % below; }

  void damage(std::string& text) {
    static const std::string kNumbers[] = {"0",
                                           "-1",
                                           "1e999",
                                           "-1e308",
                                           "1e308",
                                           "9223372036854775807",
                                           "18446744073709551616",
                                           "\"",
                                           "0.5",
                                           "[",
                                           "{}",
                                           "null",
                                           "NaN",
                                           "-Infinity",
                                           "4294967296",
                                           "4294967295"};
    const std::size_t at = pick(text.size());
    switch (pick(9)) {
      case 0: text[at] = static_cast<char>(random_()); return;                  // A byte.
      case 1: text[at] = static_cast<char>(text[at] ^ (1 << pick(8))); return;  // A bit.
      case 2: text.resize(at); return;                                          // The end.
      case 3: text.erase(at, 1 + pick(40)); return;
      case 4: text.insert(at, text.substr(pick(text.size()), 1 + pick(80))); return;
      case 5: {  // A line goes, or comes twice.
        const auto begin = text.rfind('\n', at);
        const auto end = text.find('\n', at);
        if (begin == std::string::npos || end == std::string::npos) return;
        const std::string line = text.substr(begin, end - begin);
        if (pick(2) == 0)
          text.erase(begin, end - begin);
        else
          text.insert(begin, line);
        return;
      }
      case 6: text.insert(at, std::string(pick(3000), "[{"[pick(2)])); return;  // Deep nesting.
      case 7: {  // A number becomes another one of the text: indices point elsewhere, also back.
        const std::string other = number_behind(text, pick(text.size()));
        return replace_number(text, at, other);
      }
      default: return replace_number(text, at, kNumbers[pick(std::size(kNumbers))]);
    }
  }

  static std::string number_behind(const std::string& text, std::size_t at) {
    const auto begin = text.find_first_of("0123456789", at);
    if (begin == std::string::npos) return {};
    return text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
  }

  static void replace_number(std::string& text, std::size_t at, const std::string& other) {
    const auto begin = text.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const auto end = std::min(text.find_first_not_of("0123456789.", begin), text.size());
    text.replace(begin, end - begin, other);
  }

  std::mt19937_64 random_;
};

}  // namespace spillway
