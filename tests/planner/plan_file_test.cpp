#include "spillway/planner/plan_file.h"
#include "spillway/base/mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "spillway/base/error.h"
#include "support/chain_profile.h"
#include "support/damaged_text.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::planner {
namespace {

using nlohmann::json;
using profile::StepTape;

constexpr const char* kName = "net.plan.json";

struct Planned {
  StepTape tape;
  SwapLimits limits;
  StepPlan plan;
  StepBound bound;
  std::string text;
};

/// Activations of the first layers are recomputed, the rest is swapped.
Planned planned() {
  Planned result;
  const profile::StepProfile profile = chain_profile();
  result.tape = profile.tape;
  result.limits.page_size = profile.page_size;
  result.limits.budget_pages = 44;
  Recomputation recomputation(result.tape);
  const ValueIndex first_activation = result.tape.uses[2].value;
  const std::vector<Drop> drops{{first_activation, 1}};
  result.plan = plan_with_replays(result.tape, recomputation.replays(drops), result.limits);
  result.plan.strategy = "spillway";
  const Bytes small = profile.small_bytes;
  const Bytes budget = result.limits.budget_pages * profile.page_size + small;
  result.bound = bound_plan(result.tape, result.limits);
  result.text =
      to_text(describe_plan(result.plan, result.bound, result.tape, result.limits, budget, small));
  return result;
}

StepPlan fitted(const std::string& text, const StepTape& tape, Bytes page_size = Bytes(2 << 20)) {
  const PlanFile file = parse_plan_file(text, kName);
  return fit_plan(file, kName, tape, page_size, file.limits());
}

/// As the writer sums up a file, so that a changed one is read on.
std::string resealed(json document) {
  document.erase("checksum");
  const std::string text = document.dump();
  std::uint64_t hash = text.size();
  for (const char letter : text) hash = mix(hash, static_cast<unsigned char>(letter));
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016lx", static_cast<unsigned long>(hash));
  document["checksum"] = digits.data();
  return document.dump();
}

/// What is said about the plan with a change that its checksum does not show.
std::string refusal(const std::function<void(json&)>& change) {
  const Planned made = planned();
  json document = json::parse(made.text);
  change(document);
  try {
    fitted(resealed(std::move(document)), made.tape);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(PlanFile, ComesBackAsItWas) {
  const Planned made = planned();
  ASSERT_FALSE(made.plan.replays.empty());
  ASSERT_FALSE(made.plan.swaps.swaps.empty());
  const StepPlan back = fitted(made.text, made.tape);
  EXPECT_EQ(back.strategy, "spillway");
  EXPECT_EQ(back.replays.size(), made.plan.replays.size());
  EXPECT_EQ(back.swaps.swaps.size(), made.plan.swaps.swaps.size());
  EXPECT_EQ(back.swaps.fetches.entries, made.plan.swaps.fetches.entries);
  EXPECT_EQ(back.swaps.fetches.first, made.plan.swaps.fetches.first);
  EXPECT_EQ(back.swaps.write_outs.first, made.plan.swaps.write_outs.first);
  EXPECT_EQ(back.swaps.births.entries, made.plan.swaps.births.entries);
  EXPECT_EQ(back.swaps.use_distance, made.plan.swaps.use_distance);
  EXPECT_EQ(back.swaps.birth_distance, made.plan.swaps.birth_distance);
  EXPECT_EQ(back.swaps.estimate.step_seconds, made.plan.swaps.estimate.step_seconds);
  EXPECT_EQ(back.swaps.estimate.peak_pages, made.plan.swaps.estimate.peak_pages);
  const PlanFile file = parse_plan_file(made.text, kName);
  EXPECT_EQ(to_text(file), made.text);
  EXPECT_EQ(file.limits().budget_pages, made.limits.budget_pages);
  EXPECT_EQ(file.figures.step_seconds, made.plan.swaps.estimate.step_seconds);
  EXPECT_EQ(file.figures.bound_seconds, made.bound.step_seconds);
}

/// The same step with memory for 12 pages before the disks.
Planned planned_in_two_tiers() {
  Planned result = planned();
  result.limits.far = {result.limits.rates, 12};
  result.limits.rates.read = result.limits.rates.read * 4;
  result.plan = plan_with_replays(result.tape, {}, result.limits);
  const Bytes budget = result.limits.budget_pages * result.limits.page_size;
  result.text = to_text(
      describe_plan(result.plan, result.bound, result.tape, result.limits, budget, Bytes(0)));
  return result;
}

TEST(PlanFile, KeepsTiersAndIsOlderWithoutThem) {
  const Planned made = planned_in_two_tiers();
  ASSERT_GT(made.plan.swaps.estimate.far_written_pages, 0U);
  ASSERT_GT(made.plan.swaps.estimate.near_peak_pages, 0U);
  const PlanFile file = parse_plan_file(made.text, kName);
  ASSERT_TRUE(file.far.has_value());
  EXPECT_EQ(file.far->near_pages, 12U);
  EXPECT_EQ(file.far->rates.read.bytes_per_second(),
            made.limits.far->rates.read.bytes_per_second());
  EXPECT_EQ(to_text(file), made.text);
  const StepPlan back = fitted(made.text, made.tape);
  EXPECT_EQ(back.swaps.estimate.step_seconds, made.plan.swaps.estimate.step_seconds);
  EXPECT_EQ(back.swaps.estimate.far_read_pages, made.plan.swaps.estimate.far_read_pages);
  EXPECT_EQ(json::parse(made.text).at("version"), 2);
  const json one = json::parse(planned().text);
  EXPECT_EQ(one.at("version"), 1);
  EXPECT_FALSE(one.contains("far"));
  EXPECT_FALSE(one.at("swaps").contains("far_pages"));
}

TEST(PlanFile, RefusesSenselessTiers) {
  GoldenPart golden;
  const auto said = [](const std::function<void(json&)>& change) -> std::string {
    json document = json::parse(planned_in_two_tiers().text);
    change(document);
    return error_text<ConfigError>([&] { parse_plan_file(resealed(std::move(document)), kName); });
  };
  golden.add(said([](json& d) { d.erase("far"); }));
  golden.add(said([](json& d) { d["far"]["near_pages"] = -1; }));
  golden.add(said([](json& d) { d["far"]["read_bytes_per_second"] = 0; }));
  golden.add(said([](json& d) { d["swaps"]["far_pages"][0] = 1000; }));
  golden.add(said([](json& d) { d["swaps"]["far_pages"].push_back(0); }));
}

TEST(PlanFile, KeepsTheNamesOfItsOperators) {
  GoldenPart golden;
  const Planned made = planned();
  profile::StepProfile profile = chain_profile();
  profile.origin.program = "./\"net\"";
  profile.origin.device = "cuda:1";
  const Bytes budget = made.limits.budget_pages * profile.page_size + profile.small_bytes;
  const PlanFile read = parse_plan_file(
      to_text(describe_plan(made.plan, made.bound, profile, made.limits, budget)), kName);
  EXPECT_EQ(read.program, profile.origin.program);
  EXPECT_EQ(read.device, "cuda:1");
  ASSERT_EQ(read.ops.size(), profile.tape.ops.size());
  for (std::size_t op = 0; op < read.ops.size(); ++op) {
    EXPECT_EQ(read.ops[op].name, profile.kinds[profile.kind_of_op[op]].name);
    EXPECT_EQ(read.ops[op].arguments, profile.kinds[profile.kind_of_op[op]].arguments);
  }
  const auto other = [&](profile::OpIndex op) {
    return op == 2 ? profile::OpKind{"aten::mm", "float[2, 3]"} : read.ops[op];
  };
  golden.add(text_of_other_step(read, kName, 5, other));
  const auto same = [&](profile::OpIndex op) { return read.ops[op]; };
  golden.add(text_of_other_step(read, kName, 5, same));
  golden.add(text_of_other_step(read, kName, read.ops.size(), same));
}

TEST(PlanFile, KeepsDistancesThatAStrategyHasChosenItself) {
  Planned made = planned();
  made.plan.swaps.use_distance[3] += 7;
  const PlanFile file =
      describe_plan(made.plan, made.bound, made.tape, made.limits, Bytes(1 << 30), Bytes(0));
  EXPECT_EQ(fitted(to_text(file), made.tape).swaps.use_distance, made.plan.swaps.use_distance);
}

TEST(PlanFile, MayBeLaidOutAnew) {
  const Planned made = planned();
  EXPECT_NO_THROW(fitted(json::parse(made.text).dump(4), made.tape));
}

TEST(PlanFile, RefusesATruncatedOne) {
  const Planned made = planned();
  for (std::size_t length = 0; length + 3 < made.text.size(); length += 37) {
    try {
      parse_plan_file(made.text.substr(0, length), kName);
      FAIL() << length;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("net.plan.json: "));
    }
  }
}

TEST(PlanFile, RefusesAChangedOne) {
  GoldenPart golden;
  Planned made = planned();
  const auto digit = made.text.find("\"pages\": [") + 10;
  made.text[digit] = made.text[digit] == '1' ? '2' : '1';
  golden.add(error_text<ConfigError>([&] { parse_plan_file(made.text, kName); }));
}

TEST(PlanFile, RefusesANewerOneBeforeAnythingElse) {
  GoldenPart golden;
  json document = json::parse(planned().text);
  document["version"] = 3;
  document.erase("swaps");
  golden.add(error_text<ConfigError>([&] { parse_plan_file(document.dump(), kName); }));
}

TEST(PlanFile, SaysWhatToDoWithoutAChecksum) {
  GoldenPart golden;
  json document = json::parse(planned().text);
  document.erase("checksum");
  golden.add(error_text<ConfigError>([&] { parse_plan_file(document.dump(), kName); }));
}

TEST(PlanFile, RefusesOtherFiles) {
  for (const char* text :
       {"", "[]", "7", "{}", R"({"format":"spillway-profile","version":1})", "[[[[[[[[]]]]]]]]"}) {
    EXPECT_THROW(parse_plan_file(text, kName), ConfigError) << text;
  }
}

TEST(PlanFile, RefusesAnotherProgram) {
  GoldenPart golden;
  const Planned made = planned();
  StepTape other = made.tape;
  other.ops[3].signature ^= 1;
  golden.add(error_text<PlanError>([&] { fitted(made.text, other); }));
}

TEST(PlanFile, RefusesOtherSizesOfValues) {
  const Planned made = planned();
  EXPECT_THROW(fitted(made.text, chain_profile({.activation_pages = 9}).tape), PlanError);
}

TEST(PlanFile, RefusesAnotherPageSize) {
  GoldenPart golden;
  const Planned made = planned();
  golden.add(error_text<PlanError>([&] { fitted(made.text, made.tape, Bytes(4096)); }));
}

TEST(PlanFile, RefusesWhatTheStepContradicts) {
  GoldenPart golden;
  golden.add(refusal([](json& plan) { plan["swaps"]["value"][0] = 100000; }));
  golden.add(refusal([](json& plan) { plan["swaps"]["pages"][0] = 4000; }));
  golden.add(refusal([](json& plan) { plan["swaps"]["leave"][0] = 4000; }));
  golden.add(refusal([](json& plan) { plan["swaps"]["fetches"].erase(0); }));
  golden.add(refusal([](json& plan) { plan["swaps"]["write_outs"][0] = 1; }));
  golden.add(refusal([](json& plan) { plan["swaps"]["reserve_pages"].push_back(1); }));
  golden.add(refusal([](json& plan) { plan["replays"]["op"][0] = 8; }));
  golden.add(refusal([](json& plan) { plan["replays"]["op"] = {-1}; }));
  golden.add(refusal([](json& plan) { plan["rates"]["read_bytes_per_second"] = 0; }));
  golden.add(refusal([](json& plan) { plan["budget_bytes"] = 1000; }));
  golden.add(refusal([](json& plan) { plan["budget_bytes"] = 3 << 21; }));
  EXPECT_EQ(refusal([](json& /*plan*/) {}), "");
}

/// One random change of the text, or of a place in the document.
std::string mutated(const std::string& text, std::mt19937_64& random) {
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  std::string changed = text;
  if (below(4) == 0) {
    changed[below(changed.size())] = static_cast<char>(below(256));
    return changed;
  }
  json document = json::parse(text);
  const auto places = document.flatten();
  auto place = places.begin();
  std::advance(place, static_cast<std::ptrdiff_t>(below(places.size())));
  static const std::vector<json> kStrange{-1, 0, 1, 7, 44, 4294967295, 1e300, -0.5, "x", nullptr};
  const json strange = below(3) == 0 ? json(below(60)) : kStrange[below(kStrange.size())];
  json& target = document[json::json_pointer(place.key())];
  target = strange;
  return resealed(std::move(document));
}

TEST(PlanFile, SurvivesThousandsOfMutations) {
  const Planned made = planned();
  std::mt19937_64 random(20261122);
  int refused = 0;
  constexpr int kMutations = 6000;
  for (int i = 0; i < kMutations; ++i) {
    const std::string text = mutated(made.text, random);
    try {
      fitted(text, made.tape);
    } catch (const ConfigError&) {
      ++refused;
    } catch (const PlanError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kMutations / 2);
  EXPECT_LT(refused, kMutations);  // Some changes are harmless, so more than the seal was tried.
}

// As files get damaged: without a seal that fits, so hardly any is read to the end.
TEST(PlanFile, IsRefusedInOneLineWhenItIsDamaged) {
  const Planned made = planned();
  DamagedText damaged(20261122);
  constexpr int kCases = 3000;
  int refused = 0;
  for (int i = 0; i < kCases; ++i) {
    const std::string text = damaged(made.text);
    try {
      parse_plan_file(text, kName);
    } catch (const ConfigError& error) {
      ++refused;
      const std::string said = error.what();
      ASSERT_THAT(said, ::testing::StartsWith("net.plan.json: ")) << text;
      ASSERT_LT(said.size(), 500U) << text;
      ASSERT_EQ(said.find('\n'), std::string::npos) << said;
    }
  }
  EXPECT_GT(refused, kCases * 3 / 4);
}

TEST(PlanFile, RefusesKeysThatComeTwiceAndDeepNesting) {
  GoldenPart golden;
  const std::string text = planned().text;
  const auto said = [](const std::string& changed) -> std::string {
    return error_text<ConfigError>([&] { parse_plan_file(changed, kName); });
  };
  golden.add(said("{\"far\": 1, \"far\": 2, " + text.substr(1)));
  golden.add(said("{\"x\": " + std::string(100'000, '[') + text.substr(1)));
  golden.add(said(text.substr(0, text.size() / 2)));
}

}  // namespace
}  // namespace spillway::planner
