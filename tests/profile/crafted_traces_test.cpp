// Files of some megabytes that are made to cost more than their size: importers read them in one
// pass, or refuse them. What takes minutes here instead of parts of a second has become quadratic.
#include <gtest/gtest.h>

#include <functional>

#include "spillway/base/error.h"
#include "spillway/profile/chrome_trace.h"
#include "spillway/profile/import/trace_import.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::profile {
namespace {

constexpr std::uint32_t kMany = 20'000;

std::string repeated(std::uint32_t times, const std::function<std::string(std::uint32_t)>& part) {
  std::string text;
  for (std::uint32_t i = 0; i < times; ++i) text += part(i);
  return text;
}

std::string node(std::uint32_t number, const char* kind = "ReLU",
                 const std::string& size = "4194304") {
  return message(
      "node{} -- {} -- forward_compute_time=1, backward_compute_time=1, activation_size={}, "
      "parameter_size=0\n",
      number, kind, size);
}

std::string edge(std::uint32_t from, std::uint32_t to) {
  return message("\tnode{} -- node{}\n", from, to);
}

std::string pipedream_refusal(const std::string& text) {
  return error_text<ConfigError>([&] { import_pipedream(text, "file"); });
}

TEST(CraftedPipedream, MayReadThousandsOfOutputsAtOnce) {
  GoldenPart golden;
  const std::string graph = repeated(kMany, [](std::uint32_t i) { return node(i); }) +
                            node(kMany, "Concat") +
                            repeated(kMany, [](std::uint32_t i) { return edge(i, kMany); });
  const StepProfile profile = import_pipedream(graph, "file");
  EXPECT_EQ(profile.tape.ops.size(), 2 * (kMany + 1));
  EXPECT_EQ(profile.tape.ops[kMany].use_count, kMany);
  golden.add(pipedream_refusal(graph + edge(0, kMany)));
}

TEST(CraftedPipedream, RefusesViewsOfViewsOfManyOutputs) {
  GoldenPart golden;
  std::string outputs = "[";
  outputs += repeated(2999, [](std::uint32_t) { return "4194304; "; });
  outputs += "4194304]";
  const std::string views = repeated(2000, [](std::uint32_t i) { return node(i + 1, "View"); });
  const std::string chain = repeated(2000, [](std::uint32_t i) { return edge(i, i + 1); });
  golden.add(pipedream_refusal(node(0, "LSTM", outputs) + views + chain));
  // The same ones, read many times over by few layers.
  const std::string fan =
      repeated(300, [](std::uint32_t i) { return edge(0, i + 1); }) +
      repeated(1200, [](std::uint32_t i) { return edge(i % 300 + 1, 301 + i / 300); });
  const std::string few = repeated(304, [](std::uint32_t i) { return node(i + 1, "View"); });
  golden.add(pipedream_refusal(node(0, "LSTM", outputs) + few + fan));
}

TEST(CraftedPipedream, NamesALayerOfALongCircle) {
  GoldenPart golden;
  const std::string nodes = repeated(kMany, [](std::uint32_t i) { return node(i); });
  const std::string circle =
      repeated(kMany, [](std::uint32_t i) { return edge(i, (i + 1) % kMany); });
  golden.add(pipedream_refusal(nodes + circle));
}

TEST(CraftedPipedream, SaysLittleOfLongNames) {
  GoldenPart golden;
  const std::string name = "node" + std::string(100'000, '7');
  const std::string costs =
      " -- ReLU -- forward_compute_time=1, backward_compute_time=1, activation_size=0, "
      "parameter_size=0\n";
  golden.add(pipedream_refusal(name + costs));
  golden.add(pipedream_refusal(node(1) + "\t" + name + " -- node1\n"));
}

std::string piper_node(std::uint32_t id) {
  return message(R"({}{"id":{},"TMPCs":{"1":[{"id":"vanilla","timePerSample":1,"parameterSize":0,)"
                 R"("memoryUsageA":8388608,"memoryUsageB":0}]}})",
                 id == 0 ? "" : ",", id);
}

std::string piper_edge(std::uint32_t from, std::uint32_t to, bool is_first) {
  return message(R"({}{"sourceId":{},"destId":{},"communicationCost":4194304})",
                 is_first ? "" : ",", from, to);
}

TEST(CraftedPiper, MayHaveManyLayersAndEdges) {
  const std::string text =
      R"({"nodes":[)" + repeated(kMany, piper_node) + R"(],"edges":[)" +
      repeated(kMany - 1,
               [](std::uint32_t i) {
                 return piper_edge(i, kMany - 1, i == 0) + (i == 0 ? "" : piper_edge(0, i, false));
               }) +
      "]}";
  const StepProfile profile = import_piper(text, "file");
  EXPECT_EQ(profile.tape.ops.size(), 2 * kMany);
  EXPECT_EQ(profile.tape.ops[kMany - 1].use_count, kMany - 1);
}

TEST(CraftedPiper, RefusesKeysThatComeTwiceAndDeepLists) {
  GoldenPart golden;
  const auto refused = [](const std::string& text) {
    return error_text<ConfigError>([&] { import_piper(text, "file"); });
  };
  golden.add(refused(R"({"nodes":[],"nodes":[],"edges":[]})"));
  golden.add(refused(R"({"nodes":)" + std::string(1'000'000, '[')));
  const std::string name(100'000, '\x7f');
  golden.add(refused(R"({"nodes":[{"id":1,"TMPCs":{")" + name + R"(":[]}}],"edges":[]})"));
}

std::string constants(std::uint32_t count) {
  return repeated(count, [](std::uint32_t i) {
    return message(R"({"INSTRUCTION":"CONSTANT","NAME":"x{}"})"
                   "\n"
                   R"({"INSTRUCTION":"MEMORY","NAME":"x{}","MEMORY":"4194304"})"
                   "\n",
                   i, i);
  });
}

TEST(CraftedDtr, MayHaveOperatorsOfThousandsOfArguments) {
  const std::string arguments = repeated(2 * kMany, [](std::uint32_t i) {
    return message("{}\"x{}\"", i == 0 ? "" : ",", i % kMany);
  });
  const std::string log = constants(kMany) +
                          R"({"INSTRUCTION":"MUTATE","NAME":"add_","TIME":"1",)" + R"("ARGS":[)" +
                          arguments + R"(],"MUTATE":[0,1]})" + "\n";
  const StepProfile profile = import_dtr(log, "file");
  ASSERT_EQ(profile.tape.ops.size(), 1U);
  EXPECT_EQ(profile.tape.ops[0].use_count, kMany);
  EXPECT_TRUE(profile.tape.uses[1].writes);
  EXPECT_FALSE(profile.tape.uses[2].writes);
}

TEST(CraftedDtr, SaysLittleOfLongNames) {
  GoldenPart golden;
  const auto refused = [](const std::string& text) {
    return error_text<ConfigError>([&] { import_dtr(text, "file"); });
  };
  const std::string name(100'000, 'x');
  golden.add(refused(R"({"INSTRUCTION":"RELEASE","NAME":")" + name + "\"}"));
  golden.add(refused(R"({"INSTRUCTION":")" + name + "\"}"));
  golden.add(refused(R"({"INSTRUCTION":"\u001b[2J)" + name + "\"}"));
  golden.add(refused(R"({"INSTRUCTION":"COPY","INSTRUCTION":"COPY"})"));
  golden.add(refused(R"({"INSTRUCTION":[[[)"));
}

TEST(CraftedTrace, MayHaveManyEvents) {
  constexpr std::uint32_t kEvents = 200'000;
  const std::string text =
      R"({"traceEvents":[{"ph":"M","pid":1,"name":"x"})" +
      repeated(kEvents,
               [](std::uint32_t i) {
                 return message(R"(,{"ph":"X","pid":1,"tid":1,"ts":{},"dur":1,"name":"add"})", i);
               }) +
      "]}";
  EXPECT_EQ(parse_chrome_trace(text, "file").spans.size(), kEvents);
}

}  // namespace
}  // namespace spillway::profile
