#include "spillway/base/json_reader.h"

#include <gmock/gmock.h>

#include <functional>

#include "spillway/base/error.h"
#include "support/golden_part.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;

std::string refusal(const std::string& text, const std::function<void(JsonObject)>& read = {}) {
  try {
    const JsonText json(text, "a.json", 3);
    JsonObject root = json.root();
    if (read) read(root);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(JsonReader, GivesWhatIsAskedFor) {
  const JsonText json(R"({"n": 7, "x": -0.5, "t": "a", "h": "00000000000000ff",
                          "list": [-1, 3], "inner": {"k": "v"}, "all": [{"i": 1}, {"i": 2}]})",
                      "a.json", 3);
  JsonObject root = json.root();
  EXPECT_EQ(root.count("n", 0, 7), 7U);
  EXPECT_EQ(root.number("x", -1.0, 1.0), -0.5);
  EXPECT_EQ(root.text("t"), "a");
  EXPECT_EQ(root.hexadecimal("h"), 255U);
  EXPECT_THAT(root.counts<std::uint32_t>("list", 2, -1, 3), ElementsAre(4294967295U, 3U));
  EXPECT_EQ(root.object("inner").text("k"), "v");
  EXPECT_EQ(root.objects("all")[1].count("i", 0, 9), 2U);
  EXPECT_TRUE(root.has("n"));
  EXPECT_FALSE(root.has("m"));
  EXPECT_NO_THROW(root.refuse_others());
}

TEST(JsonReader, NamesFileAndPlace) {
  const std::string text = R"({"n": -7, "o": {"x": "1"}, "list": [1, 2.5]})";
  EXPECT_EQ(refusal(text, [](auto root) { root.text("m"); }), "a.json: m is missing");
  EXPECT_EQ(refusal(text, [](auto root) { root.count("n", 0, 9); }),
            "a.json: n is -7 instead of a whole number from 0 to 9");
  EXPECT_EQ(refusal(text, [](auto root) { root.object("o").number("x", 0.0, 9.0); }),
            "a.json: o.x is \"1\" instead of a number from 0 to 9");
  EXPECT_EQ(
      refusal(text,
              [](auto root) { root.template counts<int>("list", JsonObject::kAnySize, 0, 9); }),
      "a.json: list[1] is 2.5 instead of a whole number from 0 to 9");
  EXPECT_EQ(refusal(text, [](auto root) { root.texts("list", 3); }),
            "a.json: list has 2 entries instead of 3");
  EXPECT_EQ(refusal(text, [](auto root) { root.hexadecimal("list"); }),
            "a.json: list is a list instead of text");
  EXPECT_EQ(refusal(text, [](auto root) { root.object("n"); }),
            "a.json: n is -7 instead of an object");
  EXPECT_EQ(refusal(text, [](auto root) { root.refuse_others(); }),
            "a.json: \"list\" is no key of this format");
  EXPECT_EQ(refusal("[1]"), "a.json: the text is a list instead of an object");
}

TEST(JsonReader, RefusesTextThatATerminalWouldObey) {
  const std::string text = R"({"a": "x\u001b[2J", "list": ["x", "\u009b1m"], "in": {"\u0007": 1}})";
  EXPECT_EQ(refusal(text, [](auto root) { root.text("a"); }),
            "a.json: a is 'x?[2J', with control characters in it");
  EXPECT_EQ(refusal(text, [](auto root) { root.texts("list", 2); }),
            "a.json: list[1] is '??1m', with control characters in it");
  EXPECT_EQ(refusal(text, [](auto root) { root.object("in").all_texts(); }),
            "a.json: in.? is '?', with control characters in it");
  EXPECT_EQ(refusal(text, [](auto root) { root.any_text("a"); }), "accepted");
}

TEST(JsonReader, RefusesNumbersThatDoNotFit) {
  const auto whole = [](const char* number) {
    return refusal(std::string(R"({"n": [)") + number + "]}", [](auto root) {
      root.template counts<std::int64_t>("n", 1, INT64_MIN, INT64_MAX);
    });
  };
  GoldenPart golden;
  for (const char* number : {"9223372036854775807", "9223372036854775808", "1e999", "NaN", "1.0"})
    golden.add(number, whole(number));
}

TEST(JsonReader, RefusesKeysThatComeTwiceAndDeepNesting) {
  EXPECT_EQ(refusal(R"({"a": 1, "b": {"a": 2}})"), "accepted");
  EXPECT_EQ(refusal(R"({"a": 1, "b": 2, "a": 3})"), "a.json: the key \"a\" comes twice");
  EXPECT_EQ(refusal(R"({"a": [[]]})"), "accepted");
  EXPECT_EQ(refusal(R"({"a": [[[]]]})"), "a.json: more than 3 levels of lists and objects");
  EXPECT_EQ(refusal(std::string(1'000'000, '[')),
            "a.json: more than 3 levels of lists and objects");
}

TEST(JsonReader, SaysInOneLineWhatIsNoJson) {
  const std::string said = refusal("{\"a\": \"" + std::string(100'000, 'x') + "\n\"}");
  GoldenPart().add(said);
}

TEST(JsonReader, SaysWhatAFileOfAnotherKindIsAndWhatReadsIt) {
  const auto refused = [](const FileFormat& own, const FileFormat& wanted) -> std::string {
    const JsonText text(message(R"({"format": "{}"})", own.name), "my file.json", 3);
    try {
      text.root().require_format(wanted);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refused(kJobPlanFormat, kPlanFormat),
            "my file.json is a plan for many ranks, not a plan for one device (read it with: "
            "spillway check 'my file.json', spillway simulate 'my file.json' --cluster NAME, or "
            "spillway run --split --plan 'my file.json' -- PROGRAM; a plan for one device comes "
            "from: spillway plan PROFILE --budget SIZE --out FILE)");
  for (const FileFormat& own : kFileFormats)
    for (const FileFormat& wanted : kFileFormats)
      EXPECT_EQ(refused(own, wanted) == "accepted", own.name == wanted.name) << own.name;
}

TEST(JsonReader, SumsUpAnObjectWhateverItsLayout) {
  const JsonText one(R"({"b": [1, 2], "sum": "x", "a": 1.5})", "a.json", 3);
  const JsonText other("{\"a\":1.5,\n\"b\":[1,\n2]}", "a.json", 3);
  EXPECT_EQ(one.root().compact_without("sum"), other.root().compact_without("sum"));
  EXPECT_EQ(one.root().compact_without("sum"), R"({"a":1.5,"b":[1,2]})");
}

TEST(HexadecimalText, HasSixteenDigits) {
  EXPECT_EQ(hexadecimal_text(0), "0000000000000000");
  EXPECT_EQ(hexadecimal_text(0xfedcba9876543210U), "fedcba9876543210");
}

}  // namespace
}  // namespace spillway
