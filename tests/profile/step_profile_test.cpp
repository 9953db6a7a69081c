#include "spillway/profile/step_profile.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "small_profile.h"
#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::profile {
namespace {

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

std::string refusal(const std::string& text) {
  return error_text<ConfigError>([&] { parse_profile(text, "step.json"); });
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
  GoldenPart golden;
  StepProfile profile = small_profile();
  golden.add(refusal(with(to_text(profile), R"("program": ")", R"("program": "\u001b[2J)")));
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
  GoldenPart golden;
  StepProfile profile = small_profile();
  profile.origin.device = "cuda:0";
  profile.origin.clock = kDeviceEvents;
  profile.disks = {{.write = TransferRate(3e9)}, 512};
  const std::string text = to_text(profile);
  expect_equal(parse_profile(text, "step.json"), profile);
  golden.add(refusal(with(text, R"("host_pages": 512)", R"("host_pages": -1)")));
}

// As recorded ones and files of minor version 2 are.
TEST(StepProfile, ComesBackWithoutHiddenDependences) {
  StepProfile profile = small_profile();
  profile.hidden_dependences->clear();  // Known to be none.
  expect_equal(parse_profile(to_text(profile), "step.json"), profile);
  profile.hidden_dependences.reset();
  const std::string text = to_text(profile);
  EXPECT_EQ(text.find("dependences"), std::string::npos) << text;
  expect_equal(parse_profile(with(text, R"("minor": 6)", R"("minor": 2)"), "step.json"), profile);
}

// As imported ones and files of minor version 4 are.
TEST(StepProfile, ComesBackWithoutPhases) {
  StepProfile profile = small_profile();
  profile.phase_of_op.clear();
  profile.tape.forward_end.reset();
  profile.forward_of_op.clear();
  const std::string text = to_text(profile);
  EXPECT_EQ(text.find("phase"), std::string::npos) << text;
  expect_equal(parse_profile(with(text, R"("minor": 6)", R"("minor": 4)"), "step.json"), profile);
}

TEST(ParseProfile, RefusesPhasesThatContradictThemselves) {
  GoldenPart golden;
  const std::string text = to_text(small_profile());
  golden.add(refusal(with(text, R"("forward": [-1,0,-1])", R"("forward": [-1,1,-1])")));
  golden.add(refusal(with(text, R"("forward": [-1,0,-1])", R"("forward": [-1,0,0])")));
  golden.add(refusal(with(text, R"("phase": [1,2,3])", R"("phase": [1,2,4])")));
  golden.add(refusal(with(text, R"("phase": [1,2,3])", R"("phase": [1,2])")));
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
  EXPECT_EQ(text.find("program_needs"), std::string::npos) << text;
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
  GoldenPart golden;
  golden.add(refusal(""));
  golden.add(refusal("trainer"));
  golden.add(refusal("[]"));
  golden.add(refusal("{}"));
  golden.add(refusal(R"({"traceEvents": [{"args": {"a": [[1]]}}]})"));
  golden.add(refusal(R"({"format": "gpx"})"));
  golden.add(refusal("\xff\xfe"));
}

TEST(ParseProfile, RefusesTruncatedText) {
  const std::string kSaid = "step.json: not JSON, or not all of it: ";
  const std::string text = to_text(small_profile());
  for (std::size_t length = 1; length + 2 < text.size(); ++length)
    ASSERT_EQ(refusal(text.substr(0, length)).substr(0, kSaid.size()), kSaid) << length;
}

TEST(ParseProfile, RefusesANewerVersionAndSaysWhatToDo) {
  GoldenPart golden;
  const std::string text = to_text(small_profile());
  golden.add(refusal(with(text, R"("version": 1)", R"("version": 2)")));
  golden.add(refusal(with(text, R"("version": 1)", R"("version": 0)")));
}

TEST(ParseProfile, SaysWhatToDoAboutEditedOnes) {
  GoldenPart golden;
  const std::string text = to_text(small_profile());
  golden.add(refusal(with(text, R"("small_bytes")", R"("big_bytes")")));
  golden.add(refusal(with(text, R"("source": "recorded")", R"("source": "alien")")));
}

TEST(ParseProfile, TakesAnOlderOneWithoutACommand) {
  StepProfile profile = small_profile();
  profile.origin.command.clear();
  const std::string text = with(to_text(profile), "  \"command\": \"\",\n", "");
  expect_equal(parse_profile(text, "step.json"), profile);
}

TEST(ParseProfile, IgnoresUnknownKeysOfANewerMinorVersionOnly) {
  GoldenPart golden;
  const std::string text = with(to_text(small_profile()), R"("kinds": {)", R"("kinds": {"x": 1, )");
  golden.add(refusal(text));
  expect_equal(parse_profile(with(text, R"("minor": 6)", R"("minor": 7)"), "step.json"),
               small_profile());
}

TEST(ParseProfile, RefusesKeysThatComeTwice) {
  GoldenPart golden;
  const std::string text = to_text(small_profile());
  golden.add(refusal(with(text, R"("kinds": {)", R"("kinds": {"name": [], )")));
}

TEST(ParseProfile, RefusesDeepNesting) {
  GoldenPart golden;
  const std::string text = to_text(small_profile());
  const std::string deep(100'000, '[');
  golden.add(refusal(deep));
  golden.add(refusal(with(text, R"("threads": 2)", R"("threads": )" + deep)));
}

TEST(ParseProfile, NamesThePlaceOfAWrongValue) {
  GoldenPart golden;
  const std::string text = to_text(small_profile());
  golden.add(refusal(with(text, R"("threads": 2)", R"("threads": "2")")));
  golden.add(refusal(with(text, R"("threads": 2)", R"("threads": -2)")));
  golden.add(refusal(with(text, R"("threads": 2)", R"("threads": 4294967296)")));
  golden.add(refusal(with(text, R"("threads": 2)", R"("threads": 2.5)")));
  golden.add(
      refusal(with(text, R"("time_ns": [1000000,)", R"("time_ns": [18446744073709551615,)")));
  golden.add(refusal(with(text, R"("time_ns": [1000000,)", R"("time_ns": [1e999,)")));
  golden.add(refusal(with(text, R"("time_ns": [1000000,)", R"("time_ns": [)")));
  golden.add(refusal(with(text, R"("kind": [0,1,0])", R"("kind": [0,1,2])")));
  golden.add(refusal(with(text, "0123456789abcdef", "0123456789abcdeg")));
  golden.add(refusal(with(text, R"("use_count": [2,1,3])", R"("use_count": [4294967295,1,3])")));
  golden.add(refusal(with(text, R"("use_count": [2,1,3])", R"("use_count": [2,1,2])")));
  golden.add(refusal(with(text, R"("gradient")", R"("gradint")")));
  golden.add(refusal(with(text, R"("class": [1)", R"("class": [7)")));
  golden.add(refusal(with(text, R"("bytes": [8192,1)", R"("bytes": [8192,0)")));
  golden.add(refusal(with(text, R"("bytes": [8192,1)", R"("bytes": [8192,9223372036854775807)")));
  golden.add(refusal(with(text, R"("page_bytes": 4096)", R"("page_bytes": 0)")));
  golden.add(refusal(with(text, R"("before": [0,0])", R"("before": [0])")));
  golden.add(refusal(with(text, R"("duplex_share": 0.3)", R"("duplex_share": 1.3)")));
}

TEST(CheckProfile, NamesTheContradiction) {
  GoldenPart golden;
  const auto add_contradiction = [&](const std::function<void(StepProfile&)>& edit) {
    StepProfile profile = small_profile();
    edit(profile);
    golden.add(error_text<PlanError>([&] { check(profile); }));
  };
  add_contradiction([](auto& p) { p.kind_of_op.pop_back(); });
  add_contradiction([](auto& p) { p.class_of_value.pop_back(); });
  add_contradiction([](auto& p) { p = StepProfile(); });
  add_contradiction([](auto& p) { p.tape.uses[0].value = 9; });
  add_contradiction([](auto& p) { p.tape.uses[1].value = 0; });
  add_contradiction([](auto& p) { p.tape.ops[2].first_use = 2; });
  add_contradiction([](auto& p) { p.page_size = Bytes(4095); });
  add_contradiction([](auto& p) { p.bytes_of_value[1] = Bytes(4097); });
  add_contradiction([](auto& p) { p.tape.ops[0].time = Duration(-1); });
  add_contradiction([](auto& p) {
    p.tape.ops[0].time = p.tape.ops[1].time = Duration(std::numeric_limits<std::int64_t>::max());
  });
  add_contradiction([](auto& p) { p.tape.ops[0].inside_peak_pages = 0xffffffff; });
  add_contradiction([](auto& p) { p.rates->read = TransferRate(0.0); });
  add_contradiction([](auto& p) { p.hidden_dependences->push_back({1, 3}); });
  add_contradiction([](auto& p) { p.hidden_dependences->push_back({2, 1}); });
  add_contradiction([](auto& p) { p.rates->duplex_share = 0.0; });
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
