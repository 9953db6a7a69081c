#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "planning/simulate_command.h"
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
    options.common.budget = budget;
    options.common.effort = no_effort_;
    return options;
  }

  SimulateOptions simulate_options(const std::string& plan) const {
    SimulateOptions options;
    options.common.profile = profile_;
    options.plan = plan;
    if (plan.empty()) options.common.effort = no_effort_;
    return options;
  }

  std::string plan(const PlanOptions& options) const {
    std::ostringstream out;
    EXPECT_EQ(plan_from_profile(options, out, clock_), 0);
    return out.str();
  }

  nlohmann::json told(PlanOptions options) const {
    options.common.json = true;
    return nlohmann::json::parse(plan(options));
  }

  std::string simulate(const SimulateOptions& options) const {
    std::ostringstream out;
    EXPECT_EQ(simulate_plan(options, out, clock_), 0);
    return out.str();
  }

  template <typename Command>
  static std::string refusal(const Command& command) {
    try {
      command();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("\n")));
      return error.what();
    }
    return "accepted";
  }

  std::string plan_refusal(const PlanOptions& options) const {
    return refusal([&] { plan(options); });
  }

  std::string simulate_refusal(const SimulateOptions& options) const {
    return refusal([&] { simulate(options); });
  }

  const std::string no_effort_ = "0";  // The first plan: quick, and the same at any load.
  TemporaryDirectory folder_;
  const std::string profile_ = in_folder("chain.profile.json");
  const ManualClock clock_;
};

}  // namespace spillway::cli
