#include "spillway/profile/step_profile.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <random>

#include "small_profile.h"
#include "spillway/base/error.h"

namespace spillway::profile {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

void expect_equal(const StepProfile& a, const StepProfile& b) {
  EXPECT_TRUE(a == b) << to_text(a) << "\nis not\n" << to_text(b);
}

/// `text` with the first `from` replaced.
std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  if (at == std::string::npos) {
    ADD_FAILURE() << "not in the text: " << from;
    return text;
  }
  return text.replace(at, from.size(), to);
}

void expect_refused(const std::string& text, const std::string& reason) {
  try {
    parse_profile(text, "step.json");
    ADD_FAILURE() << "accepted, instead of: " << reason;
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), StartsWith("step.json: "));
    EXPECT_THAT(error.what(), HasSubstr(reason));
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
  }
}

TEST(StepProfile, ComesBackFromTextExactly) {
  const StepProfile profile = small_profile();
  ASSERT_NO_THROW(check(profile));
  const std::string text = to_text(profile);
  const StepProfile again = parse_profile(text, "step.json");
  expect_equal(again, profile);
  EXPECT_EQ(to_text(again), text);
}

TEST(StepProfile, HoldsNothingThatATerminalWouldObey) {
  StepProfile profile = small_profile();
  expect_refused(with(to_text(profile), R"("program": ")", R"("program": "\u001b[2J)"),
                 "origin.program is '?[2J");
  profile.kinds[0].name = "my::op\x1b[2J";
  profile.origin.program = "train\n.py";
  const StepProfile again = parse_profile(to_text(profile), "step.json");
  EXPECT_EQ(again.kinds[0].name, "my::op?[2J");
  EXPECT_EQ(again.origin.program, "train?.py");
}

TEST(StepProfile, ComesBackWithoutRates) {
  StepProfile profile = small_profile();
  profile.rates.reset();
  expect_equal(parse_profile(to_text(profile), "step.json"), profile);
}

TEST(StepProfile, ComesBackWithItsDeviceAndDisks) {
  StepProfile profile = small_profile();
  profile.origin.device = "cuda:0";
  profile.origin.clock = kDeviceEvents;
  profile.disks = {{.write = TransferRate(3e9)}, 512};
  const std::string text = to_text(profile);
  expect_equal(parse_profile(text, "step.json"), profile);
  expect_refused(with(text, R"("host_pages": 512)", R"("host_pages": -1)"), "disks.host_pages");
}

// As recorded ones and files of minor version 2 are.
TEST(StepProfile, ComesBackWithoutHiddenDependences) {
  StepProfile profile = small_profile();
  profile.hidden_dependences->clear();  // Known to be none.
  expect_equal(parse_profile(to_text(profile), "step.json"), profile);
  profile.hidden_dependences.reset();
  const std::string text = to_text(profile);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("dependences")));
  expect_equal(parse_profile(with(text, R"("minor": 6)", R"("minor": 2)"), "step.json"), profile);
}

// As imported ones and files of minor version 4 are.
TEST(StepProfile, ComesBackWithoutPhases) {
  StepProfile profile = small_profile();
  profile.phase_of_op.clear();
  profile.tape.forward_end.reset();
  profile.forward_of_op.clear();
  const std::string text = to_text(profile);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("phase")));
  expect_equal(parse_profile(with(text, R"("minor": 6)", R"("minor": 4)"), "step.json"), profile);
}

TEST(ParseProfile, RefusesPhasesThatContradictThemselves) {
  const std::string text = to_text(small_profile());
  expect_refused(with(text, R"("forward": [-1,0,-1])", R"("forward": [-1,1,-1])"),
                 "operator 1 has operator 1 as its forward, which is no earlier one");
  expect_refused(with(text, R"("forward": [-1,0,-1])", R"("forward": [-1,0,0])"),
                 "operator 2 has operator 0 as its forward, but is not backward");
  expect_refused(with(text, R"("phase": [1,2,3])", R"("phase": [1,2,4])"), "phase[2] is 4");
  expect_refused(with(text, R"("phase": [1,2,3])", R"("phase": [1,2])"), "phase");
}

// As files of minor version 3 are.
TEST(StepProfile, ComesBackWithoutTheBytesOfSmallParameters) {
  StepProfile profile = small_profile();
  std::string text = with(to_text(profile), R"("minor": 6)", R"("minor": 3)");
  text = with(text, "\"small_parameter_bytes\": 34567,\n", "");
  profile.small_parameter_bytes = Bytes();
  expect_equal(parse_profile(text, "step.json"), profile);
}

// As files of minor version 0 are.
TEST(StepProfile, ComesBackWithoutTheNeedsOfTheProgram) {
  StepProfile profile = small_profile();
  profile.program_needs.reset();
  const std::string text = to_text(profile);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("program_needs")));
  expect_equal(parse_profile(with(text, R"("minor": 6)", R"("minor": 0)"), "step.json"), profile);
}

TEST(StepProfile, WritesNamesThatAreNoUtf8) {
  StepProfile profile = small_profile();
  profile.origin.program = "/bad\xff";
  EXPECT_EQ(parse_profile(to_text(profile), "step.json").origin.program, "/bad\xef\xbf\xbd");
}

// What a step of a large network looks like, with a kind of its own for every second operator.
TEST(StepProfile, TakesLessThan5MBForTenThousandOperators) {
  constexpr std::uint32_t kOps = 10'000;
  constexpr std::uint32_t kUsesOfOp = 5;
  std::mt19937_64 random(7);
  StepProfile profile;
  for (std::uint32_t i = 0; i < kOps; ++i) {
    profile.tape.values.push_back(
        {1 + i % 500, i, i + kUsesOfOp < kOps ? kOps - 1 : kSurvives, kNoValue});
    profile.bytes_of_value.push_back(profile.page_size * profile.tape.values[i].pages);
    profile.class_of_value.push_back(StorageClass::kActivation);
    const std::uint32_t uses = std::min(i, kUsesOfOp);
    TapeOp op{random(),
              Duration(random() % 1'000'000'000),
              static_cast<std::uint32_t>(profile.tape.uses.size()),
              uses,
              1 + i % 500,
              true};
    for (std::uint32_t use = 1; use <= uses; ++use) profile.tape.uses.push_back({i - use, false});
    profile.tape.ops.push_back(op);
    profile.spread_of_op.emplace_back(random() % 10'000'000);
    profile.kind_of_op.push_back(i / 2);
    if (i % 2 == 0) profile.kinds.push_back({"aten::convolution_backward", std::string(120, 'x')});
  }
  const std::string text = to_text(profile);
  EXPECT_LT(text.size(), 5'000'000U);
  EXPECT_EQ(parse_profile(text, "step.json").tape.ops.size(), kOps);
}

TEST(ParseProfile, RefusesWhatIsNoProfile) {
  expect_refused("", "not JSON, or not all of it");
  expect_refused("trainer", "not JSON, or not all of it");
  expect_refused("[]", "the text is a list instead of an object");
  expect_refused("{}", "it has no format, so it is not a profile (it is empty; ");
  expect_refused(
      R"({"traceEvents": [{"args": {"a": [[1]]}}]})",
      "(it has: traceEvents; a profile comes from: spillway profile --out FILE -- PROGRAM)");
  expect_refused(R"({"format": "gpx"})",
                 "its format is 'gpx', not 'spillway-profile' (a profile comes from: spillway "
                 "profile --out FILE -- PROGRAM)");
  expect_refused("\xff\xfe", "not JSON, or not all of it");
}

TEST(ParseProfile, RefusesTruncatedText) {
  const std::string text = to_text(small_profile());
  for (std::size_t length = 0; length + 2 < text.size(); ++length)
    expect_refused(text.substr(0, length), "not JSON, or not all of it");
}

TEST(ParseProfile, RefusesANewerVersionAndSaysWhatToDo) {
  const std::string text = to_text(small_profile());
  expect_refused(with(text, R"("version": 1)", R"("version": 2)"),
                 "version 2 of the format is newer than this Spillway, which reads 1");
  expect_refused(with(text, R"("version": 1)", R"("version": 0)"), "version is 0 instead of");
}

TEST(ParseProfile, SaysWhatToDoAboutEditedOnes) {
  const std::string text = to_text(small_profile());
  expect_refused(with(text, R"("small_bytes")", R"("big_bytes")"),
                 "small_bytes is missing (record or import it again: spillway profile)");
  expect_refused(with(text, R"("source": "recorded")", R"("source": "alien")"),
                 "origin.source is 'alien', not recorded, dtr, pipedream or piper (record");
}

TEST(ParseProfile, TakesAnOlderOneWithoutACommand) {
  StepProfile profile = small_profile();
  profile.origin.command.clear();
  const std::string text = with(to_text(profile), "  \"command\": \"\",\n", "");
  expect_equal(parse_profile(text, "step.json"), profile);
}

TEST(ParseProfile, IgnoresUnknownKeysOfANewerMinorVersionOnly) {
  const std::string text = with(to_text(small_profile()), R"("kinds": {)", R"("kinds": {"x": 1, )");
  expect_refused(text, "kinds.\"x\" is no key of this format");
  expect_equal(parse_profile(with(text, R"("minor": 6)", R"("minor": 7)"), "step.json"),
               small_profile());
}

TEST(ParseProfile, RefusesKeysThatComeTwice) {
  const std::string text = to_text(small_profile());
  expect_refused(with(text, R"("kinds": {)", R"("kinds": {"name": [], )"),
                 "the key \"name\" comes twice");
}

TEST(ParseProfile, RefusesDeepNesting) {
  const std::string text = to_text(small_profile());
  const std::string deep(100'000, '[');
  expect_refused(deep, "more than 16 levels");
  expect_refused(with(text, R"("threads": 2)", R"("threads": )" + deep), "more than 16 levels");
}

TEST(ParseProfile, NamesThePlaceOfAWrongValue) {
  const std::string text = to_text(small_profile());
  expect_refused(with(text, R"("threads": 2)", R"("threads": "2")"),
                 "origin.threads is \"2\" instead of a whole number");
  expect_refused(with(text, R"("threads": 2)", R"("threads": -2)"), "origin.threads is -2");
  expect_refused(with(text, R"("threads": 2)", R"("threads": 4294967296)"), "origin.threads is");
  expect_refused(with(text, R"("threads": 2)", R"("threads": 2.5)"), "origin.threads is 2.5");
  expect_refused(with(text, R"("time_ns": [1000000,)", R"("time_ns": [18446744073709551615,)"),
                 "ops.time_ns[0] is 18446744073709551615 instead of a whole number");
  expect_refused(with(text, R"("time_ns": [1000000,)", R"("time_ns": [1e999,)"), "not JSON");
  expect_refused(with(text, R"("time_ns": [1000000,)", R"("time_ns": [)"),
                 "ops.time_ns has 2 entries instead of 3");
  expect_refused(with(text, R"("kind": [0,1,0])", R"("kind": [0,1,2])"),
                 "operator 2 is of kind 2 of 2");
  expect_refused(with(text, "0123456789abcdef", "0123456789abcdeg"),
                 "ops.signature[2] is no number of 16 hexadecimal digits");
  expect_refused(with(text, R"("use_count": [2,1,3])", R"("use_count": [4294967295,1,3])"),
                 "the first 1 operators have 4294967295 uses of 6");
  expect_refused(with(text, R"("use_count": [2,1,3])", R"("use_count": [2,1,2])"),
                 "the operators have 5 uses of 6");
  expect_refused(with(text, R"("gradient")", R"("gradint")"), "did you mean 'gradient'");
  expect_refused(with(text, R"("class": [1)", R"("class": [7)"), "values.class[0] is 7");
  expect_refused(with(text, R"("bytes": [8192,1)", R"("bytes": [8192,0)"), "values.bytes[1] is 0");
  expect_refused(with(text, R"("bytes": [8192,1)", R"("bytes": [8192,9223372036854775807)"),
                 "values.bytes[1] is 9223372036854775807, more than can be planned for");
  expect_refused(with(text, R"("page_bytes": 4096)", R"("page_bytes": 0)"), "page_bytes is 0");
  expect_refused(with(text, R"("before": [0,0])", R"("before": [0])"),
                 "dependences.after has 2 entries instead of 1");
  expect_refused(with(text, R"("duplex_share": 0.3)", R"("duplex_share": 1.3)"),
                 "step.json: rates.duplex_share is 1.33333, not from 0.001 to 1");
}

TEST(CheckProfile, NamesTheContradiction) {
  const auto expect_contradiction = [](const std::function<void(StepProfile&)>& edit,
                                       const char* text) {
    StepProfile profile = small_profile();
    edit(profile);
    try {
      check(profile);
      ADD_FAILURE() << "accepted, instead of: " << text;
    } catch (const PlanError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  expect_contradiction([](auto& p) { p.kind_of_op.pop_back(); },
                       "2 kinds of operators instead of 3");
  expect_contradiction([](auto& p) { p.class_of_value.pop_back(); }, "4 classes of values");
  expect_contradiction([](auto& p) { p = StepProfile(); }, "has no operators");
  expect_contradiction([](auto& p) { p.tape.uses[0].value = 9; }, "operator 0 uses value 9 of 5");
  expect_contradiction([](auto& p) { p.tape.uses[1].value = 0; }, "operator 0 uses value 0 twice");
  expect_contradiction([](auto& p) { p.tape.ops[2].first_use = 2; }, "begin at 2 instead of 3");
  expect_contradiction([](auto& p) { p.page_size = Bytes(4095); }, "no power of two");
  expect_contradiction([](auto& p) { p.bytes_of_value[1] = Bytes(4097); },
                       "value 1 of 4097 bytes has 1 pages instead of 2");
  expect_contradiction([](auto& p) { p.tape.ops[0].time = Duration(-1); }, "takes -1 ns");
  expect_contradiction(
      [](auto& p) {
        p.tape.ops[0].time = p.tape.ops[1].time =
            Duration(std::numeric_limits<std::int64_t>::max());
      },
      "more than 30 years");
  expect_contradiction([](auto& p) { p.tape.ops[0].inside_peak_pages = 0xffffffff; },
                       "more than can be planned for");
  expect_contradiction([](auto& p) { p.rates->read = TransferRate(0.0); },
                       "read_bytes_per_second is 0 bytes/s, not from 0.0001 to 1000 GB/s");
  expect_contradiction(
      [](auto& p) {
        p.hidden_dependences->push_back({1, 3});
      },
      "operator 3 of 3 waits for operator 1, which is no earlier one");
  expect_contradiction(
      [](auto& p) {
        p.hidden_dependences->push_back({2, 1});
      },
      "operator 1 of 3 waits for operator 2");
  expect_contradiction([](auto& p) { p.rates->duplex_share = 0.0; },
                       "duplex_share is 0, not from 0.001 to 1");
}

TEST(StepProfile, HasNoPagesThatSmallStoragesShare) {
  for (const bool by_value : {true, false}) {
    StepProfile profile = small_profile();
    if (by_value) {
      profile.tape.values[0].is_shared = true;
    } else {
      profile.tape.ops[0].shared_count = 1;
    }
    EXPECT_THROW(check(profile), PlanError);
  }
}

}  // namespace
}  // namespace spillway::profile
