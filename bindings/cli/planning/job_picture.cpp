#include <algorithm>
#include <array>
#include <vector>

#include "planning/job_report.h"
#include "planning/svg_drawing.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/schedule/schedule_drawing.h"

namespace spillway::cli {

using job::JobPlan;
using planner_schedule::MemoryMoment;
using schedule::Action;
using schedule::ActionKind;

namespace {

constexpr std::uint32_t kMostRows = 64;
constexpr double kLeastWidth = 0.15;         // Of a bar that anyone can see.
constexpr double kLeastWidthOfBorder = 1.5;  // Of a bar, of which a border leaves some.
constexpr double kLeastWidthOfLabel = 14.0;
constexpr double kWidthOfLetter = 6.0;
constexpr double kWidthOfLegendLetter = 7.6;
constexpr const char* kMemoryStyle = "fill=\"#ddd\" stroke=\"#777\" stroke-width=\"0.6\"";
constexpr const char* kLimitStyle = "stroke=\"#D55E00\" stroke-dasharray=\"4 3\"";
constexpr const char* kPeakStyle = "font-size=\"11\" fill=\"#555\"";
constexpr const char* kPale = " fill-opacity=\"0.5\"";

/// Heights of a row: many are lower, so that a picture of them is not as long as a wall.
struct Row {
  double bars;
  double curve;
  double gap;
  double all() const { return bars + curve + gap; }
};

Row row_of(std::size_t rows) {
  constexpr std::size_t kManyRows = 16;
  return rows > kManyRows ? Row{11.0, 17.0, 6.0} : Row{16.0, 30.0, 10.0};
}

/// What a bar is, with colours that people with any colour vision tell apart (Okabe and Ito, 2008).
struct BarKind {
  const char* name;
  const char* colour;
};
constexpr std::array<BarKind, 5> kBarKinds{{{"forward", "#56B4E9"},
                                            {"backward", "#E69F00"},
                                            {"weight gradient", "#009E73"},
                                            {"recomputed", "#CC79A7"},
                                            {"update", "#000000"}}};

/// Replicas in turn, so that those that meet on a rank differ: Chimera's two, GEMS's one after the
/// other.
bool is_pale(const Action& action) { return action.replica % 2 == 1; }

const BarKind& kind_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return kBarKinds[0];
    case ActionKind::kWeightGradient: return kBarKinds[2];
    case ActionKind::kRecompute: return kBarKinds[3];
    case ActionKind::kStep: return kBarKinds[4];
    default: return kBarKinds[1];
  }
}

std::vector<std::uint32_t> shown_ranks(std::uint32_t count) {
  std::vector<std::uint32_t> ranks;
  const std::uint32_t rows = std::min(count, kMostRows);
  for (std::uint32_t row = 0; row < rows; ++row)
    ranks.push_back(
        rows < 2 ? 0 : static_cast<std::uint32_t>(std::uint64_t{row} * (count - 1) / (rows - 1)));
  return ranks;
}

class JobDrawing {
 public:
  JobDrawing(const JobPlan& plan, const std::string& title)
      : plan_(plan),
        ranks_(shown_ranks(plan.actions.rank_count())),
        row_(row_of(ranks_.size())),
        bottom_(kTop + row_.all() * static_cast<double>(ranks_.size())),
        svg_(1100.0, bottom_ + 60.0, title, subtitle(), kLeft) {
    most_seconds_ = std::max(1e-12, plan.step_seconds);
    const bool shows_limit =
        plan.device_memory != partition::kNoLimit &&
        plan.device_memory.count() / 4 <= std::max<std::uint64_t>(1, plan.peak().count());
    most_bytes_ = static_cast<double>(std::max<std::uint64_t>(1, plan.peak().count()));
    if (shows_limit) {
      limit_ = static_cast<double>(plan.device_memory.count());
      most_bytes_ = std::max(most_bytes_, limit_);
    }
  }

  std::string draw() {
    draw_legend();
    draw_axis();
    for (std::size_t row = 0; row < ranks_.size(); ++row) {
      const double top = kTop + row_.all() * static_cast<double>(row);
      svg_.label(kLeft - 8, top + row_.bars - 2, message("rank {}", ranks_[row]), "end");
      draw_bars(ranks_[row], top);
      draw_memory(ranks_[row], top + row_.bars + row_.curve + 2);
    }
    return svg_.finish();
  }

 private:
  static constexpr double kLeft = 90.0;
  static constexpr double kRight = 980.0;  // Peaks stand beyond.
  static constexpr double kTop = 96.0;

  std::string subtitle() const {
    std::string text = message("{} on {} of {}, {}: {} per step, {} idle", plan_.schedule,
                               counted(plan_.data_parallel, "pipeline"),
                               counted(plan_.ranks / plan_.data_parallel, "rank"),
                               counted(plan_.micro_batches, "micro-batch"),
                               seconds_text(plan_.step_seconds), percent_text(plan_.timing.bubble));
    if (plan_.device_memory != partition::kNoLimit)
      text += message("; devices of {}", plan_.device_memory);
    if (ranks_.size() < plan_.actions.rank_count())
      text += message("; {} of {} ranks", ranks_.size(), plan_.actions.rank_count());
    return text;
  }

  double x_of(double seconds) const {
    return kLeft + std::clamp(seconds / most_seconds_, 0.0, 1.0) * (kRight - kLeft);
  }

  void draw_legend() {
    double x = kLeft;
    const auto name = [&](const std::string& text) {
      svg_.label(x + 20, 72, text, "start");
      x += 20 + kWidthOfLegendLetter * static_cast<double>(text.size()) + 22;
    };
    for (const BarKind& kind : kBarKinds) {
      // As actions; what stages recompute by themselves is in their backward.
      const bool is_recomputation = &kind == &kind_of(ActionKind::kRecompute);
      if (is_recomputation && !has_action(plan_.actions, ActionKind::kRecompute)) continue;
      svg_.box(x, 62, 14, 10, message("fill=\"{}\"", kind.colour));
      name(kind.name);
    }
    svg_.box(x, 62, 14, 10, kMemoryStyle);
    name("memory held");
    if (limit_ > 0.0) {
      svg_.line(x, 67, x + 14, 67, kLimitStyle);
      name(message("{} of a device", plan_.device_memory));
    }
    svg_.label(kRight + 8, 72, "peak", "start", kPeakStyle);
    if (plan_.actions.replica_count() > 1) draw_replica_legend();
  }

  void draw_replica_legend() {
    svg_.box(kLeft, 77, 14, 10, message("fill=\"{}\"{}", kBarKinds[0].colour, kPale));
    svg_.label(kLeft + 20, 86,
               plan_.actions.micro_batches > 1
                   ? "pale: odd replicas of the model; 1b is micro-batch b of replica 1"
                   : "pale: odd replicas of the model; numbers are those of replicas",
               "start");
  }

  void draw_axis() {
    const AxisUnit unit = unit_for_seconds(most_seconds_);
    for (const double at : ticks(0.0, most_seconds_ / unit.size, 8)) {
      const double x = x_of(at * unit.size);
      svg_.line(x, kTop - 6, x, bottom_, kGridStyle);
      svg_.label(x, bottom_ + 18, formatted("%.4g", at), "middle");
    }
    svg_.label((kLeft + kRight) / 2, bottom_ + 42, message("time in the step ({})", unit.name),
               "middle");
  }

  void draw_bars(std::uint32_t rank, double top) {
    const auto& actions = plan_.actions.ranks[rank];
    const auto& spans = plan_.timing.spans[rank];
    svg_.line(kLeft, top + row_.bars, kRight, top + row_.bars,
              "stroke=\"#bbb\" stroke-width=\"0.5\"");
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const Action& action = actions[i];
      const double x = x_of(spans[i].start_seconds);
      const double width = x_of(spans[i].end_seconds) - x;
      if (!schedule::is_compute(action.kind) || width < kLeastWidth) continue;
      const BarKind& kind = kind_of(action.kind);
      svg_.box(x, top, width, row_.bars,
               message("fill=\"{}\"{}{}", kind.colour, is_pale(action) ? kPale : "",
                       width < kLeastWidthOfBorder ? "" : " stroke=\"#fff\" stroke-width=\"0.4\""),
               message("{}: {} from {}", to_string(action),
                       seconds_text(spans[i].end_seconds - spans[i].start_seconds),
                       seconds_text(spans[i].start_seconds)));
      if (action.micro_batch == schedule::kNoMicroBatch) continue;
      const std::string label = schedule::micro_batch_label(plan_.actions, action);
      const double letters = kWidthOfLetter * static_cast<double>(label.size());
      if (width >= std::max(kLeastWidthOfLabel, letters))
        svg_.label(x + width / 2, top + row_.bars - 3, label, "middle",
                   "font-size=\"10\" pointer-events=\"none\"");
    }
  }

  void draw_memory(std::uint32_t rank, double base) {
    const auto& moments = plan_.timing.ranks[rank].memory;
    const auto fixed = static_cast<double>(plan_.memory[rank].fixed.count());
    const auto y_of = [&](double bytes) { return base - bytes / most_bytes_ * row_.curve; };
    StepCurve curve(kLeft, y_of(static_cast<double>(moments.front().bytes.count()) + fixed));
    for (const MemoryMoment& moment : moments)
      curve.step_to(x_of(moment.seconds), y_of(static_cast<double>(moment.bytes.count()) + fixed));
    svg_.points("polygon",
                svg_point(kLeft, base) + curve.finish(kRight) + " " + svg_point(kRight, base),
                kMemoryStyle);
    if (limit_ > 0.0) svg_.line(kLeft, y_of(limit_), kRight, y_of(limit_), kLimitStyle);
    svg_.label(kRight + 8, base - 4, to_string(plan_.memory[rank].peak), "start", kPeakStyle);
  }

  const JobPlan& plan_;
  const std::vector<std::uint32_t> ranks_;
  const Row row_;
  const double bottom_;
  SvgDrawing svg_;
  double most_seconds_ = 1.0;
  double most_bytes_ = 1.0;
  double limit_ = 0.0;  ///< 0: none that can be seen.
};

}  // namespace

std::string job_picture(const JobPlan& plan, const std::string& title) {
  return JobDrawing(plan, title).draw();
}

}  // namespace spillway::cli
