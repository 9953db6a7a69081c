#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace spillway {

/// Text of foreign origin as errors show it, so that they stay one line that any terminal takes:
/// what is longer ends in "...", and bytes that are no ASCII letter or sign become question marks.
std::string shown_text(std::string_view text, std::size_t most_letters = 40);

/// The text itself, or as much of it as fits into `most_bytes` and "…" behind that. Letters of
/// UTF-8 stay whole.
std::string shortened(std::string_view text, std::size_t most_bytes);

/// What stands before the first end of a line: LibTorch's errors have a trace of the stack below.
std::string first_line(std::string_view text);

/// A word as a shell has to be given it: in single quotes where that is needed, on one line.
std::string shell_word(std::string_view word);

/// Whether there is something in it that a terminal obeys instead of showing it: a character below
/// the blank, U+007F to U+009F.
bool has_control_characters(std::string_view text);

/// The same text with question marks in place of these.
std::string without_control_characters(std::string_view text);

/// "a, b and c", with `last` between the last two.
std::string listed(std::span<const std::string> words, std::string_view last = "and");

/// The sentence of an error with " (STEP)" behind it, unless it ends with a next step of its own.
std::string with_next_step(std::string_view sentence, std::string_view step);

}  // namespace spillway
