#include "spillway/base/shown_text.h"

namespace spillway {

std::string shown_text(std::string_view text, std::size_t most_letters) {
  std::string shown(text.substr(0, most_letters));
  for (char& letter : shown)
    if (letter < ' ' || letter > '~') letter = '?';
  return text.size() <= most_letters ? shown : shown + "...";
}

std::string with_next_step(std::string_view sentence, std::string_view step) {
  std::string text(sentence);
  return text.ends_with(')') ? text : text + " (" + std::string(step) + ")";
}

}  // namespace spillway
