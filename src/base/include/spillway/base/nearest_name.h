#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace spillway {

/// How many letters must be inserted, dropped, exchanged or swapped with their neighbour.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The name most like a mistyped one, or nothing when none is near enough to be meant.
std::optional<std::string_view> nearest_name(std::string_view mistyped,
                                             std::span<const std::string_view> names);

/// " (did you mean 'budget'?)" or, with nothing near, " (known: a b c)".
std::string hint_for(std::string_view mistyped, std::span<const std::string_view> names);

}  // namespace spillway
