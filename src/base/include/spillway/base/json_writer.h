#pragma once

#include <string>

namespace spillway {

/// The text of a file of ours: one line for each list, value or object inside of an object of the
/// document, so that people find their way, and a difference of two files says something. `Json` is
/// an object of the JSON library, which no public header shows, with sorted keys or in their own
/// order. Bytes that are no UTF-8 (a path may be anything) become replacement signs.
template <typename Json>
std::string json_by_lines(const Json& document) {
  const auto text_of = [](const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = "{\n";
  for (auto item = document.begin(); item != document.end(); ++item) {
    if (item != document.begin()) text += ",\n";
    text += text_of(item.key()) + ": ";
    if (!item->is_object()) {
      text += text_of(*item);
      continue;
    }
    text += "{\n";
    for (auto inner = item->begin(); inner != item->end(); ++inner) {
      if (inner != item->begin()) text += ",\n";
      text += "  " + text_of(inner.key()) + ": " + text_of(*inner);
    }
    text += "}";
  }
  return text + "\n}\n";
}

}  // namespace spillway
