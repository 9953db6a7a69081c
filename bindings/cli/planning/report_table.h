#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/bytes.h"

namespace spillway::cli {

/// A figure of a report: as people read it, and its value in JSON.
struct Figure {
  std::string text;
  nlohmann::ordered_json json{};

  static Figure seconds(double seconds);
  static Figure bytes(Bytes size);
  static Figure share(double share);  ///< In percent for people.
  static Figure count(std::uint64_t count);
  static Figure name(std::string_view name);
  static Figure flag(bool is_set);
};

/// A figure of each row of a table. Text shows columns that have a title, JSON those that have a
/// key; nothing is a dash there, and left out here.
struct Column {
  std::string_view title;
  std::string_view key;
  std::function<std::optional<Figure>(std::size_t row)> figure;
};
using Columns = std::vector<Column>;

/// The figure that `make` makes of a part of each row: of(stages, &Stage::seconds,
/// Figure::seconds). `rows` outlive what is returned.
template <typename Rows, typename Part, typename Make>
auto of(const Rows& rows, Part part, Make make) {
  return [all = std::span(rows), part, make](std::size_t row) {
    return make(std::invoke(part, all[row]));
  };
}

/// The same of rows that are possible; nothing of others.
template <typename Rows, typename Part, typename Make>
auto if_possible(const Rows& rows, Part part, Make make) {
  return [all = std::span(rows), part, make](std::size_t row) -> std::optional<Figure> {
    if (!all[row].is_possible()) return std::nullopt;
    return make(std::invoke(part, all[row]));
  };
}

/// Rows that text shows at most, where no other number is named.
inline constexpr std::size_t kRowsShown = 64;

/// Letters of the name of a layer that text shows at most.
inline constexpr std::size_t kMostLettersOfLayer = 44;

/// Columns under their titles, two blanks apart; all but the first stand at the right. `titles`
/// chooses and orders them; empty: all. The first rows of many, with a line that counts the others.
std::string table_text(const Columns& columns, std::size_t rows,
                       const std::vector<std::string_view>& titles = {},
                       std::size_t most_shown = kRowsShown);

/// One object.
nlohmann::ordered_json row_json(const Columns& columns, std::size_t row);

/// An array of the first rows.
nlohmann::ordered_json table_json(const Columns& columns, std::size_t rows);

/// A line of a report, behind its label.
std::string line(std::string label, const std::string& text);

/// "1.20"; "-" for what cannot be told.
std::string ratio_text(double value, double of);

/// As files and pipes get it. Bytes that are no UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace spillway::cli
