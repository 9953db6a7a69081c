#include "planning/svg_drawing.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "spillway/base/error.h"

namespace spillway::cli {

std::string formatted(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string svg_number(double value) { return formatted("%.1f", value); }

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    switch (letter) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
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
