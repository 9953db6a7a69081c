#include "spillway/planner/job/job_variant.h"

#include <gmock/gmock.h>

#include "even_jobs.h"
#include "support/golden_part.h"

namespace spillway::job {
namespace {

TEST(ScheduleIn, ReadsWhatItsTextSays) {
  for (const char* text :
       {"1f1b", "1f1b-capped:slots=3", "interleaved:chunks=4,idle-offload",
        "breadth-first:chunks=1", "gems-basic:replicas=2", "gems-master:replicas=4,parked,stages",
        "gems-mast:single-owner", "chimera:parked", "gpipe:idle-offload"}) {
    const NamedSchedule named = schedule_in(text);
    EXPECT_EQ(schedule_text(named.generator->name, named.variant), text);
  }
  const NamedSchedule named = schedule_in("gems-master:idle-offload,parked,replicas=4");
  EXPECT_EQ(named.variant.replicas, 4U);
  EXPECT_EQ(named.variant.second_copy, SecondCopy::kParked);
  EXPECT_EQ(named.variant.memory_reduction, JobMemoryReduction::kIdleOffload);
}

TEST(ScheduleIn, RefusesWhatAScheduleDoesNotLeaveOpen) {
  GoldenPart golden;
  const auto reason = [](std::string_view text) { return refusal([&] { schedule_in(text); }); };
  golden.add(reason("1f1c"));
  golden.add(reason("1f1b:slots=3"));
  golden.add(reason("gems-mast:replicas=4"));
  golden.add(reason("zb-v:chunks=3"));
  golden.add(reason("1f1b-capped:slots=0"));
  golden.add(reason("1f1b-capped:slots=3x"));
  golden.add(reason("1f1b-capped:slots="));
  golden.add(reason("1f1b-capped:slots=3,slots=4"));
  golden.add(reason("1f1b-capped:slot=3"));
  golden.add(reason("gpipe:fast"));
  golden.add(reason("gpipe:idle-offload,"));
  golden.add(reason("gpipe:"));
  golden.add(reason("gems-mast:parked,single-owner"));
  golden.add(reason("gpipe:stages,idle-offload"));
  golden.add(reason("interleaved:chunks=3,parked"));
  golden.add(reason("gems-mast:parked:stages"));
  golden.add(reason("gpipe:stages:idle-offload"));
  golden.add(reason("gpipe::"));
  golden.add(reason("1f1c:stages:recompute"));
  golden.add(reason("dualpipe-v:parked"));
}

TEST(ScheduleRequestFor, TakesWhatIsSaidAndFillsInTheRest) {
  const planner_schedule::ScheduleGenerator& capped =
      planner_schedule::schedule_generator_named("1f1b-capped");
  EXPECT_EQ(schedule_request_for(capped, {}, 8, 16).slots, 4U);
  JobVariant variant;
  variant.slots = 7;
  EXPECT_EQ(schedule_request_for(capped, variant, 8, 16).slots, 7U);
  const planner_schedule::ScheduleGenerator& master =
      planner_schedule::schedule_generator_named("gems-master");
  const schedule::Schedule action_lists = master.generate(schedule_request_for(master, {}, 4, 8));
  EXPECT_EQ(to_string(as_made(master, {}, action_lists)), "replicas=8");
  const planner_schedule::ScheduleGenerator& chunks =
      planner_schedule::schedule_generator_named("interleaved");
  EXPECT_EQ(to_string(as_made(chunks, {}, chunks.generate(schedule_request_for(chunks, {}, 4, 8)))),
            "chunks=2");
}

TEST(ScheduleBeginnings, AreWhatIsReadWithACountBehindEachOpenOne) {
  std::size_t open = 0;
  for (const std::string& beginning : schedule_beginnings()) {
    const bool is_open = beginning.ends_with('=');
    const std::string text = is_open ? beginning + "2" : beginning;
    const NamedSchedule named = schedule_in(text);
    EXPECT_EQ(schedule_text(named.generator->name, named.variant), text);
    open += is_open ? 1 : 0;
  }
  EXPECT_GT(open, 3U);
}

}  // namespace
}  // namespace spillway::job
