#include "spillway/base/json_writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

TEST(JsonByLines, HasOneLineForEachListAndObjectInside) {
  const ordered_json document = {
      {"version", 1},
      {"ops", {{"time_ns", {5, 7}}, {"kind", {0, 1}}, {"deeper", {{"a", 1}, {"b", {2}}}}}},
      {"names", {"mm", "\"relu\""}},
      {"none", ordered_json::object()}};
  EXPECT_EQ(json_by_lines(document), "{\n"
                                     "\"version\": 1,\n"
                                     "\"ops\": {\n"
                                     "  \"time_ns\": [5,7],\n"
                                     "  \"kind\": [0,1],\n"
                                     "  \"deeper\": {\"a\":1,\"b\":[2]}},\n"
                                     "\"names\": [\"mm\",\"\\\"relu\\\"\"],\n"
                                     "\"none\": {\n"
                                     "}\n"
                                     "}\n");
  EXPECT_EQ(ordered_json::parse(json_by_lines(document)), document);
}

TEST(JsonByLines, SortsWhereTheDocumentDoes) {
  EXPECT_EQ(json_by_lines(json{{"b", 1}, {"a", {2}}}), "{\n\"a\": [2],\n\"b\": 1\n}\n");
}

TEST(JsonByLines, ReplacesBytesThatAreNoUtf8) {
  const std::string text = json_by_lines(json{{"path\xff", {{"key\xff", "/tmp/\xff"}}}});
  EXPECT_EQ(json::parse(text), (json{{"path\ufffd", {{"key\ufffd", "/tmp/\ufffd"}}}}));
}

}  // namespace
}  // namespace spillway
