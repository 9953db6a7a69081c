#include "planning/frontier_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "planning/svg_drawing.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {

namespace {

// A curve that is far above all others would press them onto the axis.
constexpr double kMostTimesBest = 5.0;
constexpr double kMostTimesNext = 2.0;

// Colours that people with any colour vision tell apart (Okabe and Ito, 2008), by falling contrast.
constexpr std::array<const char*, 7> kColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                              "#E69F00", "#56B4E9", "#000000"};
constexpr std::array<const char*, 3> kDashes{"", "7 4", "2 3"};

class FrontierDrawing {
 public:
  explicit FrontierDrawing(const FrontierPicture& picture)
      : picture_(picture),
        unit_(unit_for(picture.needed)),
        svg_(900.0, 540.0, picture.title, picture.subtitle, kLeft) {
    const auto& points = picture.bound.points;
    first_ = points.empty() ? 0.0 : in_unit(points.front().budget);
    last_ = std::max(in_unit(picture.needed), points.empty() ? 0.0 : in_unit(points.back().budget));
    if (last_ <= first_) first_ = 0.9 * last_ - 1e-9;
    find_top();
  }

  std::string draw() {
    svg_.add(message("<clipPath id=\"plot\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>"
                     "</clipPath>\n",
                     kLeft - 6, kTop - 6, kRight - kLeft + 12, kBottom - kTop + 12));
    draw_bound();
    draw_axes();
    draw_incore();
    svg_.add("<g clip-path=\"url(#plot)\">\n");
    // The boldest last, on top of the others.
    for (std::size_t i = picture_.curves.size(); i-- > 0;) draw_curve(i);
    svg_.add("</g>\n");
    draw_legend();
    return svg_.finish();
  }

 private:
  static constexpr double kLeft = 80.0;
  static constexpr double kRight = 690.0;  // The legend stands beyond.
  static constexpr double kTop = 70.0;
  static constexpr double kBottom = 460.0;

  double in_unit(Bytes size) const { return static_cast<double>(size.count()) / unit_.size; }
  double x_of(double size) const {
    return kLeft + (size - first_) / (last_ - first_) * (kRight - kLeft);
  }
  double y_of(double seconds) const { return kBottom - seconds / most_ * (kBottom - kTop); }
  std::string at(const PicturePoint& point) const {
    return svg_point(x_of(in_unit(point.budget)), y_of(*point.seconds));
  }

  void find_top() {
    double best = picture_.incore_seconds;
    for (const PicturePoint& point : picture_.bound.points) best = std::max(best, *point.seconds);
    if (!picture_.curves.empty()) {
      for (const PicturePoint& point : picture_.curves.front().points)
        best = std::max(best, point.seconds.value_or(0.0));
    }
    std::vector<double> highest;
    for (const PictureCurve& curve : picture_.curves) {
      highest.push_back(0.0);
      for (const PicturePoint& point : curve.points)
        highest.back() = std::max(highest.back(), point.seconds.value_or(0.0));
    }
    std::sort(highest.begin(), highest.end());
    double top = best;
    for (const double each : highest) {
      is_cut_ = each > kMostTimesNext * top || each > kMostTimesBest * best;
      if (is_cut_) break;
      top = std::max(top, each);
    }
    most_ = std::max(1e-9, 1.08 * top);
  }

  /// Why the curve is not seen; empty: it is.
  std::string why_unseen(const PictureCurve& curve) const {
    double least = std::numeric_limits<double>::infinity();
    for (const PicturePoint& point : curve.points)
      least = std::min(least, point.seconds.value_or(least));
    if (std::isinf(least)) return "no plan";
    return least > most_ ? "beyond the top" : "";
  }

  void draw_bound() {
    const auto& bound = picture_.bound.points;
    if (bound.empty()) return;
    std::string points;
    for (const PicturePoint& point : bound) points += at(point) + " ";
    const auto below = [&](const PicturePoint& point) {
      return svg_point(x_of(in_unit(point.budget)), kBottom);
    };
    svg_.points("polygon", below(bound.front()) + " " + points + below(bound.back()),
                "fill=\"#e4e4e4\"");
    svg_.points("polyline", points, "fill=\"none\" stroke=\"#777\" stroke-width=\"1.5\"");
  }

  void draw_axes() {
    for (const double at : ticks(first_, last_, 7)) {
      svg_.line(x_of(at), kBottom, x_of(at), kBottom + 5, "stroke=\"#222\"");
      svg_.label(x_of(at), kBottom + 20, formatted("%.4g", at), "middle");
      const double share = at / in_unit(picture_.needed);
      svg_.label(x_of(at), kBottom + 36, formatted("%.0f %%", 100.0 * share), "middle",
                 "fill=\"#777\" font-size=\"11\"");
    }
    const AxisUnit unit = unit_for_seconds(most_);
    for (const double at : ticks(0.0, most_ / unit.size, 7)) {
      const double y = y_of(at * unit.size);
      svg_.line(kLeft, y, kRight, y, "stroke=\"#000\" stroke-opacity=\"0.08\"");
      svg_.label(kLeft - 8, y + 4, formatted("%.4g", at), "end");
    }
    svg_.line(kLeft, kBottom, kRight, kBottom, "stroke=\"#222\"");
    svg_.line(kLeft, kTop, kLeft, kBottom, "stroke=\"#222\"");
    svg_.label((kLeft + kRight) / 2, kBottom + 58,
               message("budget ({}; below: share of what the step needs)", unit_.name), "middle");
    svg_.label(
        0, 0, message("time of a step ({})", unit.name), "middle",
        message("transform=\"translate(24 {}) rotate(-90)\"", svg_number((kTop + kBottom) / 2)));
  }

  void draw_incore() {
    const double y = y_of(picture_.incore_seconds);
    svg_.line(kLeft, y, kRight, y, "stroke=\"#222\" stroke-dasharray=\"1 4\" stroke-width=\"1.5\"");
  }

  static std::string style_of(std::size_t index) {
    const char* colour = kColours[index % kColours.size()];
    const char* dash = kDashes[index / kColours.size() % kDashes.size()];
    return message("fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-dasharray=\"{}\"",
                   colour, index == 0 ? "3" : "1.6", *dash == '\0' ? "none" : dash);
  }

  void draw_curve(std::size_t index) {
    const PictureCurve& curve = picture_.curves[index];
    std::string run;
    const auto finish = [&] {
      if (!run.empty()) svg_.points("polyline", run, style_of(index));
      run.clear();
    };
    for (const PicturePoint& point : curve.points) {
      if (point.seconds)
        run += at(point) + " ";
      else
        finish();
    }
    finish();
    for (const PicturePoint& point : curve.points) {
      if (!point.seconds) continue;
      svg_.add(message("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"><title>{}: {} at {}"
                       "</title></circle>\n",
                       svg_number(x_of(in_unit(point.budget))), svg_number(y_of(*point.seconds)),
                       index == 0 ? "4" : "2.5", kColours[index % kColours.size()],
                       escaped(curve.name), seconds_text(*point.seconds), point.budget));
    }
  }

  void draw_legend() {
    constexpr double kLegendRow = 20.0;
    double y = kTop + 6;
    const double from = kRight + 24;
    for (std::size_t i = 0; i < picture_.curves.size(); ++i, y += kLegendRow) {
      const std::string& name = picture_.curves[i].name;
      if (const std::string reason = why_unseen(picture_.curves[i]); !reason.empty()) {
        svg_.label(from + 36, y + 4, message("{}: {}", name, reason), "start", "fill=\"#777\"");
        continue;
      }
      svg_.points("polyline", svg_point(from, y) + " " + svg_point(from + 28, y), style_of(i));
      svg_.label(from + 36, y + 4, name, "start");
    }
    svg_.add(message("<rect x=\"{}\" y=\"{}\" width=\"28\" height=\"12\" fill=\"#e4e4e4\"/>\n",
                     svg_number(from), svg_number(y - 6)));
    svg_.line(from, y - 6, from + 28, y - 6, "stroke=\"#777\" stroke-width=\"1.5\"");
    svg_.label(from + 36, y + 4, "no plan is faster", "start");
    y += kLegendRow;
    svg_.line(from, y, from + 28, y,
              "stroke=\"#222\" stroke-dasharray=\"1 4\" stroke-width=\"1.5\"");
    svg_.label(from + 36, y + 4, "in-core", "start");
    y += kLegendRow;
    if (!is_cut_) return;
    svg_.label(from, y + 6, "Slower ones are", "start", "fill=\"#777\"");
    svg_.label(from, y + 6 + kLegendRow, "beyond the top.", "start", "fill=\"#777\"");
  }

  const FrontierPicture& picture_;
  const AxisUnit unit_;
  double first_ = 0.0;
  double last_ = 1.0;
  double most_ = 1.0;
  bool is_cut_ = false;
  SvgDrawing svg_;
};

}  // namespace

std::string to_svg(const FrontierPicture& picture) { return FrontierDrawing(picture).draw(); }

}  // namespace spillway::cli
