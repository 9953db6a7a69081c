#include "spillway/base/shown_text.h"

#include "spillway/base/error.h"

namespace spillway {
namespace {

/// How many bytes from `at` are a control character; 0: none.
std::size_t control_bytes(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t index) {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0xFFU;
  };
  if (byte(at) < 0x20U || byte(at) == 0x7FU) return 1;
  return byte(at) == 0xC2U && byte(at + 1) >= 0x80U && byte(at + 1) <= 0x9FU ? 2 : 0;
}

}  // namespace

std::string shown_text(std::string_view text, std::size_t most_letters) {
  std::string shown(text.substr(0, most_letters));
  for (char& letter : shown)
    if (letter < ' ' || letter > '~') letter = '?';
  return text.size() <= most_letters ? shown : shown + "...";
}

std::string shortened(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  const auto is_inside_letter = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  constexpr std::size_t kMostInside = 3;  // A letter has up to four bytes.
  std::size_t end = most_bytes;
  while (end > 0 && most_bytes - end < kMostInside && is_inside_letter(end)) --end;
  if (is_inside_letter(end)) end = most_bytes;  // That is no UTF-8: there are no letters to keep.
  return std::string(text.substr(0, end)) + "…";
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%^";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'')
      text += "'\\''";
    else
      text += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
  }
  return text + "'";
}

bool has_control_characters(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at)
    if (control_bytes(text, at) > 0) return true;
  return false;
}

std::string without_control_characters(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = control_bytes(text, at);
    plain += bytes > 0 ? '?' : text[at];
    at += bytes > 0 ? bytes : 1;
  }
  return plain;
}

std::string listed(std::span<const std::string> words, std::string_view last) {
  std::string text;
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (at > 0) text += at + 1 == words.size() ? message(" {} ", last) : ", ";
    text += words[at];
  }
  return text;
}

std::string with_next_step(std::string_view sentence, std::string_view step) {
  std::string text(sentence);
  return text.ends_with(')') ? text : text + " (" + std::string(step) + ")";
}

}  // namespace spillway
