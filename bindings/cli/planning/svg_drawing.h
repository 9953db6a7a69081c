#pragma once

#include <string>
#include <vector>

#include "spillway/base/bytes.h"

namespace spillway::cli {

/// A figure by a pattern of printf: formatted("%.4g", 1.5).
std::string formatted(const char* pattern, double value);

/// A length or a place: "12.5".
std::string svg_number(double value);

/// A point of a line or an area: "12.5,30.0".
std::string svg_point(double x, double y);

/// Text as SVG takes it. Bytes that are no UTF-8 (a path may be anything), and letters that XML
/// does not have, are replaced.
std::string escaped(const std::string& text);

/// Multiples of 1, 2 or 5 times a power of ten, about `count` of them.
std::vector<double> ticks(double from, double to, int count);

/// A unit of an axis, in seconds or bytes.
struct AxisUnit {
  const char* name;
  double size;
};

/// The largest one of which there are two at least.
AxisUnit unit_for(Bytes largest);
/// Seconds, or milliseconds below one.
AxisUnit unit_for_seconds(double largest);

/// Of a line across what is drawn, at a tick of an axis.
inline constexpr const char* kGridStyle = "stroke=\"#000\" stroke-opacity=\"0.08\"";

/// A self-contained picture in SVG, on white. Styles are attributes: "stroke=\"#222\"".
class SvgDrawing {
 public:
  /// With the title above what is drawn, and the subtitle below that, from x on.
  SvgDrawing(double width, double height, const std::string& title,
             const std::string& subtitle = {}, double x = 0.0);

  /// `anchor`: start, middle or end of the text lies at x.
  void label(double x, double y, const std::string& text, const char* anchor,
             const std::string& more = {});
  void line(double x1, double y1, double x2, double y2, const std::string& style);
  /// With a text that appears above it, where there is one.
  void box(double x, double y, double width, double height, const std::string& style,
           const std::string& hint = {});
  /// `shape`: "polyline" or "polygon".
  void points(const char* shape, const std::string& points, const std::string& style);
  /// Elements as they are.
  void add(const std::string& elements) { text_ += elements; }

  /// The file.
  std::string finish() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

/// A curve that goes in steps, as points of a polygon in a picture. Of steps within one column of
/// pixels it keeps where the first and the last one are, and the lowest and the highest: four
/// points per column at most, however many steps there are.
class StepCurve {
 public:
  /// It begins at this height.
  StepCurve(double x, double y);

  /// From x on at another height. Steps come from left to right.
  void step_to(double x, double y);

  /// " x,y x,y …" up to x.
  std::string finish(double x);

 private:
  void add_point(double x, double y) { (points_ += ' ') += svg_point(x, y); }
  void end_column();

  std::string points_;
  double y_ = 0.0;  ///< Before the column.
  bool has_column_ = false;
  double first_x_ = 0.0, last_x_ = 0.0;  ///< Of steps in the column.
  double least_y_ = 0.0, most_y_ = 0.0, last_y_ = 0.0;
};

/// Throws as `write_picture` for a path it could not write, before there is a picture.
void check_picture_path(const std::string& path);

/// Writes a picture to a file that ends in .svg, or in .png with the help of `rsvg-convert`. Throws
/// ConfigError for other endings, UnsupportedError without that program, IoError.
void write_picture(const std::string& svg, const std::string& path);

}  // namespace spillway::cli
