#include "planning/svg_drawing.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {

namespace {

/// The letters that XML has, with signs in place of others and of bytes that are no UTF-8, which
/// the JSON library finds.
std::string letters_of_xml(const std::string& text) {
  using nlohmann::json;
  constexpr std::string_view kReplacement = "\uFFFD";
  const std::string quoted =
      json(without_control_characters(text)).dump(-1, ' ', false, json::error_handler_t::replace);
  auto letters = json::parse(quoted).get<std::string>();
  for (const std::string_view none : {"\uFFFE", "\uFFFF"})
    for (auto at = letters.find(none); at != std::string::npos; at = letters.find(none, at))
      letters.replace(at, none.size(), kReplacement);
  return letters;
}

}  // namespace

std::string formatted(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string svg_number(double value) { return formatted("%.1f", value); }

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : letters_of_xml(text)) {
    switch (letter) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += letter;
    }
  }
  return result;
}

double nice_step(double range, int count) {
  const double rough = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10.0 * power;
}

SizeUnit unit_for(Bytes largest) {
  constexpr std::array<SizeUnit, 4> kUnits{
      {{"TiB", 1099511627776.0}, {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}}};
  for (const SizeUnit& unit : kUnits)
    if (static_cast<double>(largest.count()) >= 2.0 * unit.size) return unit;
  return kUnits.back();
}

SvgDrawing::SvgDrawing(double width, double height, const std::string& title) {
  text_ = message("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
                  "height=\"{}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n",
                  width, height, width, height);
  text_ += message("<title>{}</title>\n<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/>\n",
                   escaped(title), width, height);
}

void SvgDrawing::label(double x, double y, const std::string& text, const char* anchor,
                       const std::string& more) {
  text_ += message("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" {}>{}</text>\n", svg_number(x),
                   svg_number(y), anchor, more, escaped(text));
}

void SvgDrawing::line(double x1, double y1, double x2, double y2, const std::string& style) {
  text_ += message("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {}/>\n", svg_number(x1),
                   svg_number(y1), svg_number(x2), svg_number(y2), style);
}

void SvgDrawing::box(double x, double y, double width, double height, const std::string& style,
                     const std::string& hint) {
  text_ += message("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}", svg_number(x),
                   svg_number(y), svg_number(width), svg_number(height), style);
  text_ += hint.empty() ? "/>\n" : message("><title>{}</title></rect>\n", escaped(hint));
}

}  // namespace spillway::cli
