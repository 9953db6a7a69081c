#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "planning/frontier.h"
#include "planning_command.h"
#include "support/golden_part.h"

namespace spillway::cli {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FrontierCommand : public PlanningCommand {
 protected:
  PlanOptions frontier(std::uint32_t points = 9) const {
    PlanOptions asked = options("");
    asked.frontier = true;
    asked.points = points;
    return asked;
  }
};

TEST_F(FrontierCommand, GoesFromTheSmallestBudgetToAllThatIsNeeded) {
  PlanOptions asked = frontier(5);
  asked.common.json = true;
  const json list = json::parse(output(asked));
  ASSERT_EQ(list.size(), 5U);
  EXPECT_EQ(list.front().at("budget_bytes"), list.front().at("smallest_budget_bytes"));
  EXPECT_EQ(list.back().at("budget_bytes"), list.back().at("needed_bytes"));
  EXPECT_NEAR(list.back().at("step_seconds"), list.back().at("incore_seconds"), 1e-9);
  double last = 1e9;
  for (const json& figures : list) {
    if (figures.at("strategy") != "spillway") continue;
    EXPECT_LE(figures.at("bound_seconds"), last);
    last = figures.at("bound_seconds");
  }
}

TEST_F(FrontierCommand, HasOneRowForEachBudgetThatMakesADifference) {
  write(profile_, profile::to_text(chain_profile({.layers = 1, .parameter_pages = 1})));
  PlanOptions asked = frontier(1000);
  asked.common.json = true;
  const json list = json::parse(output(asked));
  const auto bytes = [&](const char* key) { return list.back().at(key).get<std::uint64_t>(); };
  const std::uint64_t page = chain_profile().page_size.count();
  // One for each page more, and no budget twice.
  const std::uint64_t choices = (bytes("needed_bytes") - bytes("smallest_budget_bytes")) / page + 1;
  ASSERT_GT(choices, 1U);
  EXPECT_EQ(list.size(), choices);
  std::set<std::uint64_t> budgets;
  for (const json& figures : list) budgets.insert(figures.at("budget_bytes").get<std::uint64_t>());
  EXPECT_EQ(budgets.size(), choices);
  EXPECT_EQ(*budgets.begin(), bytes("smallest_budget_bytes"));
  EXPECT_EQ(*budgets.rbegin(), bytes("needed_bytes"));
}

/// Open and closed elements in balance; enough to see what a browser would not show.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (tag.front() == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find_first_of(" \n")));
    }
  }
  EXPECT_THAT(open, ElementsAre());
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST_F(FrontierCommand, DrawsASelfContainedPicture) {
  auto odd = chain_profile();
  odd.origin.program = "/home/<a> & \"b\"/train";
  write(profile_, profile::to_text(odd));
  PlanOptions asked = frontier(4);
  asked.picture = in_folder("chain.svg");
  output(asked);
  const std::string svg = file_text(asked.picture);
  expect_well_formed(svg);
  EXPECT_EQ(svg.find("http", 60), std::string::npos);  // Nothing is fetched.
}

/// Two budgets, under which each strategy takes as long.
Frontier flat(const std::vector<std::pair<const char*, double>>& strategies) {
  Frontier frontier{strategies.size(), {}};
  for (const Bytes budget : {1_MiB, 8_MiB})
    for (const auto& [name, seconds] : strategies) {
      PlanFigures& plan = frontier.plans.emplace_back();
      plan.strategy = name;
      plan.budget = budget;
      plan.step_seconds = seconds;
      plan.bound_seconds = 0.4;
      if (seconds == 0.0) plan.refusal = "none";
    }
  return frontier;
}

TEST(FrontierSvg, ShowsACurveOrSaysWhyNot) {
  PlanningStep step;
  step.path = "step.json";
  step.needed = 8_MiB;
  step.incore_seconds = 0.4;
  const auto drawn = [&](double slow) {
    return frontier_svg(step, {},
                        flat({{"ours", 0.5}, {"theirs", 0.6}, {"slow", slow}, {"none", 0.0}}));
  };
  const std::string svg = drawn(1.3);
  expect_well_formed(svg);
  // The others have the height for themselves.
  GoldenPart golden;
  golden.add(svg);
  EXPECT_EQ(drawn(1.1).find("beyond"), std::string::npos);
}

/// PATH for the time of one test.
class SearchPath {
 public:
  explicit SearchPath(const std::string& path) : before_(std::getenv("PATH")) {
    ::setenv("PATH", path.c_str(), 1);
  }
  ~SearchPath() { ::setenv("PATH", before_.c_str(), 1); }

 private:
  const std::string before_;
};

TEST_F(FrontierCommand, HasThePngMadeByAConverter) {
  const std::string converter = in_folder("rsvg-convert");
  write(converter, "#!/bin/sh\n[ \"$3\" = --output ] && /bin/cp \"$5\" \"$4\"\n");
  ::chmod(converter.c_str(), 0755);
  const SearchPath here(folder_.path());
  PlanOptions asked = frontier(3);
  asked.picture = in_folder("chain.PNG");
  output(asked);
  asked.picture = in_folder("chain.svg");
  output(asked);
  EXPECT_EQ(file_text(in_folder("chain.PNG")), file_text(asked.picture));
}

/// Files take one page, as on a disk that is nearly full: the trial passes, and no picture fits.
class OnePageOfRoom {
 public:
  OnePageOfRoom() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit page{4096, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &page);
  }
  ~OnePageOfRoom() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

TEST_F(FrontierCommand, LeavesNoTemporaryFileThatItCouldNotWrite) {
  const std::string converter = in_folder("rsvg-convert");
  write(converter, "#!/bin/sh\n");
  ::chmod(converter.c_str(), 0755);
  const SearchPath here(folder_.path());
  const TemporaryDirectory temporary;
  ASSERT_EQ(::setenv("TMPDIR", temporary.path().c_str(), 1), 0);
  PlanOptions asked = frontier(2);
  asked.picture = in_folder("chain.png");
  std::string said;
  {
    const OnePageOfRoom full;
    said = refusal(asked);
  }
  GoldenPart golden;
  golden.add(std::regex_replace(said, std::regex("(picture-)\\w{6}"), "$1NAME"));
  EXPECT_THAT(temporary.entries(), IsEmpty());
  ASSERT_EQ(::unsetenv("TMPDIR"), 0);
}

TEST(FrontierText, SaysOnceWhyAStrategyHasNoPlan) {
  const PlanningStep step = to_step(chain_profile(), "chain.json");
  PlanFigures plan;
  plan.strategy = "rotor";
  plan.budget = 1_GiB;
  plan.refusal = "too many choices";
  PlanFigures larger = plan;
  larger.budget = 2_GiB;
  GoldenPart golden;
  golden.add(frontier_text(step, choose_rates({}, step.profile), {1, {plan, larger}}));
}

}  // namespace
}  // namespace spillway::cli
