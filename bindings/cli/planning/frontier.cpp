#include "planning/frontier.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>

#include "planning/plan_report.h"
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
constexpr std::array<const char*, 3> kDashes{"none", "7 4", "2 3"};
constexpr const char* kBoundStyle = "fill=\"none\" stroke=\"#777\" stroke-width=\"1.5\"";
constexpr const char* kIncoreStyle =
    "stroke=\"#222\" stroke-dasharray=\"1 4\" stroke-width=\"1.5\"";

std::string title_of(const PlanningStep& step) {
  const std::string& program = step.profile.origin.program;
  return message("{}: time of a step under a budget",
                 program.empty() ? step.path : std::filesystem::path(program).filename().string());
}

/// Axes with units, a curve for each strategy, the bound as a filled line, a legend; times far
/// above the first curve leave the picture at the top.
class FrontierDrawing {
 public:
  FrontierDrawing(const PlanningStep& step, const ChosenRates& rates, const Frontier& frontier)
      : step_(step),
        unit_(unit_for(step.needed)),
        curves_(frontier.strategies),
        svg_(900.0, 540.0, title_of(step), rates_text(rates), kLeft) {
    for (std::size_t i = 0; i < frontier.plans.size(); ++i) {
      const PlanFigures& plan = frontier.plans[i];
      curves_[i % curves_.size()].push_back(&plan);
      // The bound is the same for all, but only a plan tells it.
      const bool is_known = !bound_.empty() && bound_.back()->budget == plan.budget;
      if (!is_known && plan.is_possible()) bound_.push_back(&plan);
    }
    first_ = bound_.empty() ? 0.0 : in_unit(bound_.front()->budget);
    last_ = std::max(in_unit(step.needed), bound_.empty() ? 0.0 : in_unit(bound_.back()->budget));
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
    for (std::size_t i = curves_.size(); i-- > 0;) draw_curve(i);
    svg_.add("</g>\n");
    draw_legend();
    return svg_.finish();
  }

 private:
  using Curve = std::vector<const PlanFigures*>;  ///< By budget.

  static constexpr double kLeft = 80.0;
  static constexpr double kRight = 690.0;  // The legend stands beyond.
  static constexpr double kTop = 70.0;
  static constexpr double kBottom = 460.0;

  double in_unit(Bytes size) const { return static_cast<double>(size.count()) / unit_.size; }
  double x_of(double size) const {
    return kLeft + (size - first_) / (last_ - first_) * (kRight - kLeft);
  }
  double y_of(double seconds) const { return kBottom - seconds / most_ * (kBottom - kTop); }
  std::string at(const PlanFigures& plan, double seconds) const {
    return svg_point(x_of(in_unit(plan.budget)), y_of(seconds));
  }

  void find_top() {
    double best = step_.incore_seconds;
    for (const PlanFigures* plan : bound_) best = std::max(best, plan->bound_seconds);
    std::vector<double> highest;
    for (const Curve& curve : curves_) {
      highest.push_back(0.0);
      for (const PlanFigures* plan : curve)
        if (plan->is_possible()) highest.back() = std::max(highest.back(), plan->step_seconds);
    }
    if (!highest.empty()) best = std::max(best, highest.front());
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
  std::string why_unseen(const Curve& curve) const {
    double least = std::numeric_limits<double>::infinity();
    for (const PlanFigures* plan : curve)
      if (plan->is_possible()) least = std::min(least, plan->step_seconds);
    if (std::isinf(least)) return "no plan";
    return least > most_ ? "beyond the top" : "";
  }

  void draw_bound() {
    if (bound_.empty()) return;
    std::string points;
    for (const PlanFigures* plan : bound_) points += at(*plan, plan->bound_seconds) + " ";
    svg_.points("polygon", at(*bound_.front(), 0.0) + " " + points + at(*bound_.back(), 0.0),
                "fill=\"#e4e4e4\"");
    svg_.points("polyline", points, kBoundStyle);
  }

  void draw_axes() {
    for (const double at : ticks(first_, last_, 7)) {
      svg_.line(x_of(at), kBottom, x_of(at), kBottom + 5, "stroke=\"#222\"");
      svg_.label(x_of(at), kBottom + 20, formatted("%.4g", at), "middle");
      const double share = at / in_unit(step_.needed);
      svg_.label(x_of(at), kBottom + 36, formatted("%.0f %%", 100.0 * share), "middle",
                 "fill=\"#777\" font-size=\"11\"");
    }
    const AxisUnit unit = unit_for_seconds(most_);
    for (const double at : ticks(0.0, most_ / unit.size, 7)) {
      const double y = y_of(at * unit.size);
      svg_.line(kLeft, y, kRight, y, kGridStyle);
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
    const double y = y_of(step_.incore_seconds);
    svg_.line(kLeft, y, kRight, y, kIncoreStyle);
  }

  static std::string style_of(std::size_t index) {
    const char* colour = kColours[index % kColours.size()];
    const char* dash = kDashes[index / kColours.size() % kDashes.size()];
    return message("fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-dasharray=\"{}\"",
                   colour, index == 0 ? "3" : "1.6", dash);
  }

  void draw_curve(std::size_t index) {
    std::string run;
    std::string dots;
    const auto finish = [&] {
      if (!run.empty()) svg_.points("polyline", run, style_of(index));
      run.clear();
    };
    for (const PlanFigures* plan : curves_[index]) {
      if (!plan->is_possible()) {
        finish();
        continue;
      }
      run += at(*plan, plan->step_seconds) + " ";
      dots += message("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"><title>{}: {} at {}"
                      "</title></circle>\n",
                      svg_number(x_of(in_unit(plan->budget))), svg_number(y_of(plan->step_seconds)),
                      index == 0 ? "4" : "2.5", kColours[index % kColours.size()],
                      escaped(plan->strategy), seconds_text(plan->step_seconds), plan->budget);
    }
    finish();
    svg_.add(dots);
  }

  void draw_legend() {
    constexpr double kLegendRow = 20.0;
    double y = kTop + 6;
    const double from = kRight + 24;
    const auto name = [&](const std::string& text, const std::string& style = {}) {
      svg_.label(from + 36, y + 4, text, "start", style);
      y += kLegendRow;
    };
    for (std::size_t i = 0; i < curves_.size(); ++i) {
      const std::string& strategy = curves_[i].front()->strategy;
      if (const std::string reason = why_unseen(curves_[i]); !reason.empty()) {
        name(message("{}: {}", strategy, reason), "fill=\"#777\"");
        continue;
      }
      svg_.points("polyline", svg_point(from, y) + " " + svg_point(from + 28, y), style_of(i));
      name(strategy);
    }
    svg_.add(message("<rect x=\"{}\" y=\"{}\" width=\"28\" height=\"12\" fill=\"#e4e4e4\"/>\n",
                     svg_number(from), svg_number(y - 6)));
    svg_.line(from, y - 6, from + 28, y - 6, "stroke=\"#777\" stroke-width=\"1.5\"");
    name("no plan is faster");
    svg_.line(from, y, from + 28, y, kIncoreStyle);
    name("in-core");
    if (!is_cut_) return;
    // In two lines: one would be cut off at the edge.
    svg_.label(from, y + 6, "Slower ones are", "start", "fill=\"#777\"");
    svg_.label(from, y + 6 + kLegendRow, "beyond the top.", "start", "fill=\"#777\"");
  }

  const PlanningStep& step_;
  const AxisUnit unit_;
  std::vector<Curve> curves_;
  Curve bound_;  ///< Of each budget a plan that tells it.
  double first_ = 0.0;
  double last_ = 1.0;
  double most_ = 1.0;
  bool is_cut_ = false;
  SvgDrawing svg_;
};

/// Why a row has dashes: for each strategy the first reason.
std::string refusals_text(const std::vector<PlanFigures>& plans) {
  std::string text;
  std::set<std::string_view> told;
  for (const PlanFigures& plan : plans)
    if (!plan.is_possible() && told.insert(plan.strategy).second)
      text += message("{} has no plan for {}: {}\n", plan.strategy, plan.budget, plan.refusal);
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::vector<Bytes> frontier_budgets(const PlanningStep& step, std::size_t points) {
  // Rounded up: what an operator outside of the step needs may be no whole number of pages.
  const Bytes page = step.profile.page_size;
  const std::uint64_t least = (step.smallest - step.profile.small_bytes + page - Bytes(1)) / page;
  const std::uint64_t most =
      std::max(least, (step.needed - step.profile.small_bytes) / step.profile.page_size);
  std::vector<Bytes> budgets;
  for (std::size_t i = 0; i < points; ++i) {
    const std::uint64_t pages = points < 2 ? most : least + (most - least) * i / (points - 1);
    const Bytes budget = in_memory(step, pages);
    if (budgets.empty() || budgets.back() != budget) budgets.push_back(budget);
  }
  return budgets;
}

Frontier plan_frontier(
    const PlanningStep& step, const ChosenRates& rates, BoundEffort bound,
    std::span<const planner::Strategy> strategies, std::size_t points, double most_seconds,
    const Clock& clock,
    const std::function<void(std::size_t, std::size_t, const std::string&)>& on_progress) {
  Frontier frontier;
  frontier.strategies = strategies.size();
  const std::vector<Bytes> budgets = frontier_budgets(step, points);
  for (const Bytes budget : budgets) {
    on_progress(frontier.plans.size(), budgets.size() * strategies.size(),
                message("bound at {}", budget));
    const PlanningCase planning = case_for(step, budget, limits_for(step, budget, rates), bound);
    for (const planner::Strategy& strategy : strategies) {
      on_progress(frontier.plans.size(), budgets.size() * strategies.size(),
                  message("{} at {}", strategy.name, budget));
      frontier.plans.push_back(plan_with(strategy, planning, most_seconds, clock).figures);
    }
  }
  return frontier;
}

std::string frontier_text(const PlanningStep& step, const ChosenRates& rates,
                          const Frontier& frontier) {
  return step_text(step, rates) + "\n" +
         table_text(plan_table(step, rates, frontier.plans),
                    {"budget", "share", "strategy", "step", "x in-core", "bound", "gap", "out",
                     "in", "recomputed"},
                    kAllRows) +
         refusals_text(frontier.plans);
}

std::string frontier_svg(const PlanningStep& step, const ChosenRates& rates,
                         const Frontier& frontier) {
  return FrontierDrawing(step, rates, frontier).draw();
}

}  // namespace spillway::cli
