#include "spillway/base/shown_text.h"

namespace spillway {

std::string shown_text(std::string_view text, std::size_t most_letters) {
  std::string shown(text.substr(0, most_letters));
  for (char& letter : shown)
    if (letter < ' ' || letter > '~') letter = '?';
  return text.size() <= most_letters ? shown : shown + "...";
}

}  // namespace spillway
