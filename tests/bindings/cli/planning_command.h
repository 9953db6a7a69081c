#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "planning/commands.h"
#include "spillway/base/error.h"
#include "support/chain_profile.h"
#include "support/file_text.h"
#include "support/manual_clock.h"
#include "support/temporary_directory.h"

namespace spillway::cli {

/// A profile in a folder of its own, and the commands on it.
class PlanningCommand : public ::testing::Test {
 protected:
  PlanningCommand() { write(profile_, profile::to_text(chain_profile())); }

  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }

  std::string in_folder(const std::string& name) const { return folder_.path() + "/" + name; }

  PlanOptions options(const std::string& budget) const {
    PlanOptions options;
    options.common.profile = profile_;
    if (!budget.empty()) options.common.budget = budgets().read("--budget", budget);
    options.common.effort = kNoEffort;
    return options;
  }

  SimulateOptions simulate_options(const std::string& plan) const {
    SimulateOptions options;
    options.common.profile = profile_;
    options.plan = plan;
    if (plan.empty()) options.common.effort = kNoEffort;
    return options;
  }

  static std::vector<planner::Strategy> all_strategies() {
    return {planner::strategies().begin(), planner::strategies().end()};
  }

  /// What a command prints.
  template <typename Options>
  std::string output(const Options& options) const {
    std::ostringstream out;
    carry_out(options, out);
    return out.str();
  }

  /// As JSON.
  template <typename Options>
  nlohmann::json told(Options options) const {
    if constexpr (requires { options.json; })
      options.json = true;
    else
      options.common.json = true;
    return nlohmann::json::parse(output(options));
  }

  /// The one line of its error.
  template <typename Options>
  std::string refusal(const Options& options) const {
    try {
      output(options);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("\n")));
      return error.what();
    }
    return "accepted";
  }

  static constexpr double kNoEffort = 0.0;  // The first plan: quick, and the same at any load.
  TemporaryDirectory folder_;
  const std::string profile_ = in_folder("chain.profile.json");
  const ManualClock clock_;

 private:
  void carry_out(const PlanOptions& options, std::ostream& out) const {
    plan_from_profile(options, out, clock_);
  }
  void carry_out(const JobOptions& options, std::ostream& out) const {
    plan_job(options, out, clock_);
  }
  void carry_out(const RebalanceOptions& options, std::ostream& out) const {
    rebalance_plan(options, out, clock_);
  }
  void carry_out(const CostOptions& options, std::ostream& out) const {
    cut_costs(options, out, clock_);
  }
  void carry_out(const SimulateOptions& options, std::ostream& out) const {
    simulate_plan(options, out, clock_);
  }
  void carry_out(const ClusterOptions& options, std::ostream& out) const {
    simulate_on_cluster(options, out, clock_);
  }
  void carry_out(const CheckOptions& options, std::ostream& out) const {
    check_plan(options, out, clock_);
  }
};

}  // namespace spillway::cli
