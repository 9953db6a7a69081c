#include "planning/report_table.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "spillway/base/assert.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {

using nlohmann::ordered_json;

namespace {

// "…" is one letter of three bytes.
std::size_t letters(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], letters(row[i]));
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - letters(row[i]), ' ');
      line += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::vector<const Column*> shown(const std::vector<Column>& columns,
                                 const std::vector<std::string_view>& titles) {
  std::vector<const Column*> chosen;
  if (titles.empty())
    for (const Column& each : columns)
      if (!each.title.empty()) chosen.push_back(&each);
  for (const std::string_view title : titles) {
    const auto found = std::find_if(columns.begin(), columns.end(),
                                    [&](const Column& each) { return each.title == title; });
    SPILLWAY_ASSERT(found != columns.end());
    chosen.push_back(&*found);
  }
  return chosen;
}

}  // namespace

Figure::Figure(Bytes size) : Figure(to_string(size), size.count()) {}

Figure Figure::duration(double seconds) { return {seconds_text(seconds), seconds}; }
Figure Figure::share(double share) { return {percent_text(share), share}; }

std::string table_text(const Table& table, const std::vector<std::string_view>& titles,
                       std::size_t most_shown) {
  std::vector<std::vector<std::string>> cells(1 + std::min(table.rows, most_shown));
  for (const Column* column : shown(table.columns, titles)) {
    cells.front().emplace_back(column->title);
    for (std::size_t row = 0; row + 1 < cells.size(); ++row) {
      const std::optional<Figure> figure = column->figure(row);
      cells[row + 1].push_back(figure ? figure->text : "-");
    }
  }
  if (table.rows <= most_shown) return aligned(cells);
  return aligned(cells) + message("and {} more; --json tells all\n", table.rows - most_shown);
}

ordered_json row_json(const Table& table, std::size_t row) {
  ordered_json json = ordered_json::object();
  for (const Column& column : table.columns) {
    if (column.key.empty()) continue;
    if (std::optional<Figure> figure = column.figure(row))
      json[std::string(column.key)] = std::move(figure->json);
  }
  return json;
}

ordered_json table_json(const Table& table) {
  ordered_json list = ordered_json::array();
  for (std::size_t row = 0; row < table.rows; ++row) list.push_back(row_json(table, row));
  return list;
}

std::string labelled(std::string label, const std::string& text) {
  constexpr std::size_t kLabel = 10;
  label.resize(kLabel, ' ');
  return label + text + "\n";
}

std::string ratio_text(double value, double of) {
  if (of <= 0.0) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value / of);
  return text.data();
}

std::string json_text(const ordered_json& json) {
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::cli
