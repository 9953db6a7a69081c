#include "planning/frontier.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>

#include "child_output.h"
#include "planning/frontier_picture.h"
#include "planning/plan_report.h"
#include "planning/planning_text.h"
#include "program_file.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

namespace {

constexpr const char* kConverter = "rsvg-convert";

std::string ending_of(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return ending;
}

std::string search_path() {
  const char* path = std::getenv("PATH");
  return path == nullptr ? std::string() : path;
}

FrontierPicture picture_of(const PlanningStep& step, const ChosenRates& rates,
                           const Frontier& frontier) {
  FrontierPicture picture;
  const std::string& program = step.profile.origin.program;
  picture.title =
      message("{}: time of a step under a budget",
              program.empty() ? step.path : std::filesystem::path(program).filename().string());
  picture.subtitle = rates_text(rates);
  picture.needed = step.needed;
  picture.incore_seconds = step.incore_seconds;
  picture.curves.resize(frontier.strategies);
  for (std::size_t i = 0; i < frontier.plans.size(); ++i) {
    const PlanFigures& plan = frontier.plans[i];
    PictureCurve& curve = picture.curves[i % frontier.strategies];
    curve.name = plan.strategy;
    PicturePoint point{plan.budget, {}};
    if (plan.is_possible()) point.seconds = plan.step_seconds;
    curve.points.push_back(point);
    // The bound is the same for all, but only a plan tells it.
    auto& bound = picture.bound.points;
    const bool is_known = !bound.empty() && bound.back().budget == plan.budget;
    if (!is_known && plan.is_possible()) bound.push_back({plan.budget, plan.bound_seconds});
  }
  return picture;
}

/// Why a row has dashes: for each strategy the first reason.
std::string refusals_text(const std::vector<PlanFigures>& plans) {
  std::string text;
  std::set<std::string_view> told;
  for (const PlanFigures& plan : plans)
    if (!plan.is_possible() && told.insert(plan.strategy).second)
      text += message("{} has no plan for {}: {}\n", plan.strategy, plan.budget, plan.refusal);
  return text.empty() ? text : "\n" + text;
}

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
      : path_((std::filesystem::temp_directory_path() / "spillway-frontier-XXXXXX").string()) {
    const int file = ::mkstemp(path_.data());
    if (file < 0)
      throw IoError("cannot make the file {}: {} (set TMPDIR to a folder that can be written to)",
                    path_, std::strerror(errno));
    ::close(file);
  }

  std::string path_;
};

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
  std::vector<std::vector<std::string>> rows{{"budget", "share", "strategy", "step", "x in-core",
                                              "bound", "gap", "out", "in", "recomputed"}};
  for (const PlanFigures& plan : frontier.plans) {
    const double share =
        static_cast<double>(plan.budget.count()) / static_cast<double>(step.needed.count());
    std::vector<std::string> row{to_string(plan.budget), percent_text(share), plan.strategy};
    if (plan.is_possible()) {
      for (const std::string& cell :
           {seconds_text(plan.step_seconds), ratio_text(plan.step_seconds, step.incore_seconds),
            seconds_text(plan.bound_seconds), percent_text(plan.gap()), to_string(plan.written),
            to_string(plan.read), seconds_text(plan.recompute_seconds)})
        row.push_back(cell);
    } else {
      row.resize(rows.front().size(), "-");
    }
    rows.push_back(std::move(row));
  }
  return step_text(step, rates) + "\n" + table_text(rows) + refusals_text(frontier.plans);
}

void check_picture_path(const std::string& path) {
  const std::string ending = ending_of(path);
  if (ending != ".svg" && ending != ".png")
    throw ConfigError("--frontier: the picture {} must end in .svg or .png", path);
  if (ending == ".svg") return;
  const ProgramLookup converter = find_program(kConverter, search_path());
  if (converter.path.empty() || !converter.hindrance.empty())
    throw UnsupportedError("a picture in PNG needs the program {} (on Debian: apt-get install "
                           "librsvg2-bin); name a file that ends in .svg instead of {}",
                           kConverter, path);
}

void write_picture(const PlanningStep& step, const ChosenRates& rates, const Frontier& frontier,
                   const std::string& path) {
  check_picture_path(path);
  const std::string svg = to_svg(picture_of(step, rates, frontier));
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
