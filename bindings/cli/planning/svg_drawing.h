#pragma once

#include <string>

#include "spillway/base/bytes.h"

namespace spillway::cli {

/// A figure by a pattern of printf: formatted("%.4g", 1.5).
std::string formatted(const char* pattern, double value);

/// A length or a place: "12.5".
std::string svg_number(double value);

/// Text as SVG takes it. Bytes that are no UTF-8 (a path may be anything), and letters that XML
/// does not have, are replaced.
std::string escaped(const std::string& text);

/// 1, 2 or 5 times a power of ten, so that about `count` of them fill the range.
double nice_step(double range, int count);

/// A unit of sizes for an axis.
struct SizeUnit {
  const char* name;
  double size;  ///< In bytes.
};

/// The largest one of which there are two at least.
SizeUnit unit_for(Bytes largest);

/// A self-contained picture in SVG, on white. Styles are attributes: "stroke=\"#222\"".
class SvgDrawing {
 public:
  SvgDrawing(double width, double height, const std::string& title);

  /// `anchor`: start, middle or end of the text lies at x.
  void label(double x, double y, const std::string& text, const char* anchor,
             const std::string& more = {});
  void line(double x1, double y1, double x2, double y2, const std::string& style);
  /// With a text that appears above it, where there is one.
  void box(double x, double y, double width, double height, const std::string& style,
           const std::string& hint = {});
  /// Elements as they are.
  void add(const std::string& elements) { text_ += elements; }

  /// The file.
  std::string finish() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

}  // namespace spillway::cli
