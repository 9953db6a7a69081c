#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/error.h"

namespace spillway::cli {

/// A figure of a report: as people read it, and its value in JSON. Its type tells what it is.
struct Figure {
  Figure(std::string as_text, nlohmann::ordered_json as_json)
      : text(std::move(as_text)), json(std::move(as_json)) {}
  Figure(Bytes size);
  template <std::integral Value>
  Figure(Value value) : text(std::to_string(value)), json(value) {
    if constexpr (std::same_as<Value, bool>) text = value ? "yes" : "no";
  }
  template <std::convertible_to<std::string_view> Name>
  Figure(const Name& name) : text(name), json(text) {}

  static Figure duration(double seconds);
  static Figure share(double share);  ///< In percent for people.

  std::string text;
  nlohmann::ordered_json json;
};

/// A figure of each row of a table. Text shows columns that have a title, JSON those that have a
/// key; nothing is a dash there, and left out here.
struct Column {
  std::string_view title;
  std::string_view key;
  std::function<std::optional<Figure>(std::size_t row)> figure;
};

/// It refers to what its figures are made of.
struct Table {
  std::size_t rows = 0;
  std::vector<Column> columns;
};

/// A part of each row as a figure, or what `make` makes of it: of(stages, &Stage::seconds),
/// of(stages, &Stage::bubble, Figure::share). `rows` outlive what is returned.
template <typename Rows, typename Part, typename Make = std::identity>
auto of(const Rows& rows, Part part, Make make = {}) {
  return [all = std::span(rows), part, make](std::size_t row) -> Figure {
    return make(std::invoke(part, all[row]));
  };
}

/// The same of rows that are possible; nothing of others.
template <typename Rows, typename Part, typename Make = std::identity>
auto if_possible(const Rows& rows, Part part, Make make = {}) {
  return [all = std::span(rows), part, make](std::size_t row) -> std::optional<Figure> {
    if (!all[row].is_possible()) return std::nullopt;
    return Figure(make(std::invoke(part, all[row])));
  };
}

/// Rows that text shows at most, where no other number is named.
inline constexpr std::size_t kRowsShown = 64;
inline constexpr std::size_t kAllRows = std::numeric_limits<std::size_t>::max();

/// Letters of the name of a layer that text shows at most.
inline constexpr std::size_t kMostLettersOfLayer = 44;

/// Columns under their titles, two blanks apart; all but the first stand at the right. `titles`
/// chooses and orders them; empty: all. The first rows of many, with a line that counts the others.
std::string table_text(const Table& table, const std::vector<std::string_view>& titles = {},
                       std::size_t most_shown = kRowsShown);

/// One object.
nlohmann::ordered_json row_json(const Table& table, std::size_t row);

/// An array of all rows.
nlohmann::ordered_json table_json(const Table& table);

/// A text behind its label of ten letters, as a line of a report.
std::string labelled(std::string label, const std::string& text);

/// The same of a pattern as `message` fills it.
template <typename... Args>
std::string line(std::string label, std::string_view pattern, const Args&... args) {
  return labelled(std::move(label), message(pattern, args...));
}

/// "1.20"; "-" for what cannot be told.
std::string ratio_text(double value, double of);

/// As files and pipes get it. Bytes that are no UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace spillway::cli
