#include "planning/svg_drawing.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "child_output.h"
#include "output_files.h"
#include "program_file.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/topology/atomic_file.h"

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

double nice_step(double range, int count) {
  const double rough = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10.0 * power;
}

constexpr const char* kConverter = "rsvg-convert";

/// A file of its own below the folder for temporary ones, gone at the end.
class TemporarySvg {
 public:
  explicit TemporarySvg(const std::string& text) : TemporarySvg() {
    topology::write_file_at_once(path_, text);  // When it throws, the destructor still runs.
  }
  ~TemporarySvg() { ::unlink(path_.c_str()); }
  TemporarySvg(const TemporarySvg&) = delete;
  TemporarySvg& operator=(const TemporarySvg&) = delete;

  const std::string& path() const { return path_; }

 private:
  TemporarySvg()
      : path_((std::filesystem::temp_directory_path() / "spillway-picture-XXXXXX").string()) {
    const int file = ::mkstemp(path_.data());
    if (file < 0)
      throw IoError("cannot make the file {}: {} (set TMPDIR to a folder that can be written to)",
                    path_, std::strerror(errno));
    ::close(file);
  }

  std::string path_;
};

}  // namespace

std::string formatted(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string svg_number(double value) { return formatted("%.1f", value); }
std::string svg_point(double x, double y) { return svg_number(x) + "," + svg_number(y); }

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

std::vector<double> ticks(double from, double to, int count) {
  constexpr double kRounding = 1e-9;
  const double step = nice_step(to - from, count);
  std::vector<double> places;
  // No minus in front of a zero.
  for (double at = std::ceil(from / step - kRounding) * step + 0.0; at <= to + kRounding;
       at += step)
    places.push_back(at);
  return places;
}

AxisUnit unit_for(Bytes largest) {
  constexpr std::array<AxisUnit, 4> kUnits{
      {{"TiB", 1099511627776.0}, {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}}};
  for (const AxisUnit& unit : kUnits)
    if (static_cast<double>(largest.count()) >= 2.0 * unit.size) return unit;
  return kUnits.back();
}

AxisUnit unit_for_seconds(double largest) {
  return largest < 1.0 ? AxisUnit{"ms", 1e-3} : AxisUnit{"s", 1.0};
}

SvgDrawing::SvgDrawing(double width, double height, const std::string& title,
                       const std::string& subtitle, double x) {
  text_ = message("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
                  "height=\"{}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n",
                  width, height, width, height);
  text_ += message("<title>{}</title>\n<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/>\n",
                   escaped(title), width, height);
  if (subtitle.empty()) return;
  label(x, 28, title, "start", "font-size=\"17\" font-weight=\"bold\"");
  label(x, 48, subtitle, "start", "fill=\"#555\"");
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

void SvgDrawing::points(const char* shape, const std::string& points, const std::string& style) {
  text_ += message("<{} points=\"{}\" {}/>\n", shape, points, style);
}

StepCurve::StepCurve(double x, double y) : y_(y) { add_point(x, y); }

void StepCurve::step_to(double x, double y) {
  if (has_column_ && std::floor(x) == std::floor(first_x_)) {
    least_y_ = std::min(least_y_, y);
    most_y_ = std::max(most_y_, y);
  } else {
    end_column();
    has_column_ = true;
    first_x_ = x;
    least_y_ = most_y_ = y;
  }
  last_x_ = x;
  last_y_ = y;
}

std::string StepCurve::finish(double x) {
  end_column();
  add_point(x, y_);
  return std::move(points_);
}

void StepCurve::end_column() {
  if (!has_column_) return;
  has_column_ = false;
  add_point(first_x_, y_);
  if (least_y_ < std::min(y_, last_y_)) add_point(first_x_, least_y_);
  if (most_y_ > std::max(y_, last_y_)) add_point(last_x_, most_y_);
  add_point(last_x_, last_y_);
  y_ = last_y_;
}

void check_picture_path(const std::string& path) {
  const std::string ending = ending_of(path);
  if (ending != ".svg" && ending != ".png")
    throw ConfigError("--picture: the picture {} must end in .svg or .png", path);
  if (ending == ".svg") return;
  const ProgramLookup converter = find_program(kConverter);
  if (converter.path.empty() || !converter.hindrance.empty())
    throw UnsupportedError("a picture in PNG needs the program {} (on Debian: apt-get install "
                           "librsvg2-bin); name a file that ends in .svg instead of {}",
                           kConverter, path);
}

void write_picture(const std::string& svg, const std::string& path) {
  check_picture_path(path);
  if (ending_of(path) == ".svg") {
    topology::write_file_at_once(path, svg);
    return;
  }
  const TemporarySvg source(svg);
  const ChildOutcome outcome =
      outcome_of({kConverter, "--zoom", "2", "--output", path, source.path()});
  if (!outcome.ending.empty())
    throw IoError("cannot write {}: {} ended with {}: {}", path, kConverter, outcome.ending,
                  outcome.output.substr(0, outcome.output.find('\n')));
}

}  // namespace spillway::cli
