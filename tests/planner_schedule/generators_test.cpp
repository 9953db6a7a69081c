#include "spillway/planner/schedule/generators.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <optional>
#include <set>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/schedule_check.h"
#include "spillway/schedule/weight_copies.h"
#include "support/generated_schedule.h"

namespace spillway::planner_schedule {
namespace {

using ::testing::HasSubstr;

/// Every request of a grid that the generator does not refuse.
template <typename Visit>
void for_each_request(Visit visit) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 5U, 6U, 8U, 9U})
    for (const std::uint32_t micro_batches : {1U, 2U, 3U, 4U, 6U, 8U, 12U, 18U})
      for (const std::uint32_t variant : {1U, 2U, 3U})
        visit(ScheduleRequest{.ranks = ranks,
                              .micro_batches = micro_batches,
                              .replicas = variant == 1 ? 0 : variant,
                              .stages_per_rank = variant,
                              .slots = variant});
}

std::string text_of(const ScheduleRequest& request) {
  return message("{} ranks, {} micro-batches, {} replicas, {} stages per rank", request.ranks,
                 request.micro_batches, request.replicas, request.stages_per_rank);
}

/// Nothing for counts that it cannot serve.
std::optional<Schedule> made_by(const ScheduleGenerator& generator,
                                const ScheduleRequest& request) {
  if (generator.fault(request)) return std::nullopt;
  return generator.generate(request);
}

/// Whether an option of a request changes the action lists.
bool reads(const ScheduleGenerator& generator, std::uint32_t ScheduleRequest::*option,
           std::uint32_t one, std::uint32_t other) {
  ScheduleRequest request{.ranks = 4, .micro_batches = 12};
  request.*option = one;
  const auto with_one = made_by(generator, request);
  request.*option = other;
  const auto with_other = made_by(generator, request);
  return with_one && with_other && with_one->ranks != with_other->ranks;
}

// Bounds are proven for what generators say of themselves.
TEST(Generators, HaveTheTraitsThatTheySay) {
  for (const ScheduleGenerator& generator : schedule_generators()) {
    bool is_whole = true;
    bool has_pairs = false;
    std::size_t copies = 0;
    for_each_request([&](const ScheduleRequest& request) {
      const auto schedule = made_by(generator, request);
      if (!schedule) return;
      for (const auto& list : schedule->ranks)
        for (const Action& action : list) {
          is_whole &= action.kind != ActionKind::kWeightGradient;
          has_pairs |= action.overlaps_next;
        }
      const WeightCopies all(*schedule);
      for (std::uint32_t stage = 0; stage < schedule->stages; ++stage)
        copies = std::max(copies, all.holders(stage).size());
    });
    EXPECT_EQ(generator.traits.is_whole, is_whole) << generator.name;
    EXPECT_EQ(generator.traits.has_pairs, has_pairs) << generator.name;
    EXPECT_EQ(generator.traits.copies, copies) << generator.name;
    EXPECT_EQ(generator.traits.has_slots, reads(generator, &ScheduleRequest::slots, 1, 3))
        << generator.name;
    EXPECT_EQ(generator.traits.fewest_replicas != 0,
              reads(generator, &ScheduleRequest::replicas, 0, 4))
        << generator.name;
  }
}

TEST(Generators, MakeSchedulesWithoutFaultsOnAGridOfCounts) {
  for (const ScheduleGenerator& generator : schedule_generators()) {
    std::size_t made = 0;
    for_each_request([&](const ScheduleRequest& request) {
      if (const auto fault = generator.fault(request)) {
        EXPECT_THAT(*fault, HasSubstr(std::string(generator.name)));
        EXPECT_THROW(generator.generate(request), ConfigError);
        return;
      }
      const Schedule schedule = generator.generate(request);
      ++made;
      const auto fault = schedule::first_fault(schedule);
      EXPECT_FALSE(fault) << generator.name << ", " << text_of(request) << ": "
                          << schedule::to_string(*fault);
      const Schedule complete = *with_communication(schedule);
      const auto later = schedule::first_fault(complete);
      EXPECT_FALSE(later) << generator.name << ", " << text_of(request) << ": "
                          << schedule::to_string(*later);
      EXPECT_EQ(schedule.all_micro_batches(), request.micro_batches);
    });
    EXPECT_GE(made, 20U) << generator.name;
  }
}

TEST(Generators, AreCompleteAndDescribed) {
  std::set<std::string_view> names;
  for (const ScheduleGenerator& generator : schedule_generators()) {
    EXPECT_TRUE(names.insert(generator.name).second) << generator.name;
    EXPECT_LE(generator.summary.size(), 90U) << generator.name;
    EXPECT_FALSE(generator.source.empty()) << generator.name;
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf(
                         {"adaptis",      "gpipe",   "1f1b",          "1f1b-capped", "interleaved",
                          "pipedream",    "chimera", "pipedream-2bw", "gems-basic",  "gems-mast",
                          "gems-master",  "zb-h1",   "zb-h2",         "zb-v",        "v-half",
                          "v-min",        "gis",     "gis-h",         "dualpipe-v",  "pipeoffload",
                          "breadth-first"}));
}

void expect_refusal(std::string_view name, const ScheduleRequest& request,
                    const std::string& sentence) {
  try {
    generated(name, request);
    FAIL() << name << " took it";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), sentence);
  }
}

TEST(Generators, RefuseWhatTheyCannotServe) {
  expect_refusal("chimera", {.ranks = 3, .micro_batches = 4},
                 "chimera needs an even number of ranks, not 3 (use 4, or 1f1b)");
  expect_refusal("chimera", {.ranks = 4, .micro_batches = 5},
                 "chimera needs an even number of micro-batches, not 5 (use 6, or 1f1b)");
  expect_refusal(
      "interleaved", {.ranks = 4, .micro_batches = 6},
      "interleaved needs a multiple of its 4 ranks as micro-batches, not 6 (use 8, or 1f1b)");
  expect_refusal("gems-master", {.ranks = 4, .micro_batches = 6, .replicas = 4},
                 "gems-master shares its micro-batches among 4 replicas, and 6 is no multiple "
                 "(use 8)");
  expect_refusal("gems-mast", {.ranks = 4, .micro_batches = 6, .replicas = 3},
                 "gems-mast has 2 replicas, not 3 (use gems-master)");
  expect_refusal("dualpipe-v", {.ranks = 4, .micro_batches = 7},
                 "dualpipe-v needs at least 8 micro-batches, two for each rank, not 7 (or use "
                 "zb-v)");
  expect_refusal("gpipe", {.ranks = 0, .micro_batches = 1},
                 "gpipe needs between 1 and 65536 ranks, not 0");
  expect_refusal("gpipe", {.ranks = 1, .micro_batches = 1U << 31U},
                 "gpipe needs between 1 and 65536 micro-batches, not 2147483648");
  expect_refusal("1f1b", {.ranks = 60000, .micro_batches = 60000, .stages_per_rank = 1},
                 "1f1b: 3600000000 passes of micro-batches through stages are too many (use up "
                 "to 67108864)");
}

// The stages of a rank count where it has several, and not where the request names some for others.
TEST(Generators, CountThePassesThatTheyMake) {
  const auto refusal_of = [](std::string_view name, std::uint32_t stages_per_rank) {
    try {
      generated(name, {.ranks = 60000, .micro_batches = 60000, .stages_per_rank = stages_per_rank});
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto passes = [](std::string_view name, std::uint64_t count) {
    return message(
        "{}: {} passes of micro-batches through stages are too many (use up to 67108864)", name,
        count);
  };
  constexpr std::uint64_t kOneStage = std::uint64_t{60000} * 60000;
  for (const char* name : {"gpipe", "1f1b", "gems-mast"})
    EXPECT_EQ(refusal_of(name, 2), passes(name, kOneStage));
  for (const char* name : {"zb-v", "v-half", "v-min", "dualpipe-v"})
    EXPECT_EQ(refusal_of(name, 1), passes(name, 2 * kOneStage));
  for (const char* name : {"interleaved", "breadth-first", "gis-h", "pipeoffload"})
    EXPECT_EQ(refusal_of(name, 3), passes(name, 3 * kOneStage));
}

TEST(Generators, KnowTheNearestName) {
  try {
    schedule_generator_named("zbh1");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("zb-h1"));
  }
}

TEST(Generators, ServeAThousandRanks) {
  for (const char* name : {"1f1b", "1f1b-capped", "zb-h1", "v-half", "gems-mast", "adaptis"}) {
    const Schedule schedule = generated(name, 1024, 64);
    EXPECT_FALSE(schedule::first_fault(schedule)) << name;
  }
}

}  // namespace
}  // namespace spillway::planner_schedule
