#include "spillway/profile/import/trace_import.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <set>

#include "profile_sums.h"
#include "small_profile.h"
#include "small_traces.h"
#include "spillway/base/error.h"
#include "support/damaged_text.h"

namespace spillway::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// "conv(v0 v1) > v2; relu_(v2!)": operators with their uses ("!" writes) and births.
std::string drawing(const StepProfile& profile) {
  const StepTape& tape = profile.tape;
  std::string text;
  for (OpIndex op = 0; op < tape.ops.size(); ++op) {
    text += (op == 0 ? "" : "; ") + profile.kinds[profile.kind_of_op[op]].name + "(";
    for (std::uint32_t i = 0; i < tape.ops[op].use_count; ++i) {
      const TapeUse& use = tape.uses[tape.ops[op].first_use + i];
      text += message("{}v{}{}", i == 0 ? "" : " ", use.value, use.writes ? "!" : "");
    }
    text += ")";
    for (ValueIndex i = 0; i < tape.values.size(); ++i)
      if (tape.values[i].birth == op) text += message(" > v{}", i);
  }
  return text;
}

std::vector<std::int64_t> times(const StepProfile& profile) {
  std::vector<std::int64_t> all;
  for (const TapeOp& op : profile.tape.ops) all.push_back(op.time.count());
  return all;
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  if (at == std::string::npos) ADD_FAILURE() << "not in the text: " << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

using Import = std::function<StepProfile(const std::string&)>;

const Import kDtr = [](const std::string& text) { return import_dtr(text, "file"); };
const Import kPipedream = [](const std::string& text) { return import_pipedream(text, "file"); };
const Import kPiper = [](const std::string& text) { return import_piper(text, "file"); };

void expect_refused(const Import& import, const std::string& text, const std::string& reason) {
  try {
    import(text);
    ADD_FAILURE() << "accepted, instead of: " << reason;
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), StartsWith("file"));
    EXPECT_THAT(error.what(), HasSubstr(reason));
  }
}

// ------------------------------------------------------------------------------------------ DTR

TEST(ImportDtr, ReplaysTheLog) {
  const StepProfile profile = kDtr(kDtrLog);
  // Views and operators on small tensors lend their time to the one before.
  EXPECT_EQ(drawing(profile), "conv(v0 v1) > v2; relu_(v2!); conv_backward(v2 v0) > v3");
  EXPECT_THAT(times(profile), ElementsAre(1020, 304, 5000));
  EXPECT_EQ(profile.kinds[0].arguments, "2097152 B, 4194304 B");
  EXPECT_EQ(profile.page_size, Bytes(std::uint64_t{2} << 20));
  EXPECT_EQ(profile.small_bytes, Bytes(16));
  EXPECT_EQ(peak_bytes(profile), (2 + 4 + 6 + 4) * 1048576.0 + 16);
  EXPECT_EQ(profile.origin.source, "dtr");
}

TEST(ImportDtr, TellsInputsParametersAndGradientsApart) {
  const StepProfile profile = kDtr(kDtrLog);
  EXPECT_THAT(profile.class_of_value,
              ElementsAre(StorageClass::kInput, StorageClass::kParameter, StorageClass::kActivation,
                          StorageClass::kGradient));
  const auto& values = profile.tape.values;
  EXPECT_EQ(values[0].death, 2U);  // The input is freed, the weights are there for the next step.
  EXPECT_EQ(values[1].becomes, 1U);
  EXPECT_EQ(values[2].death, 2U);  // The view held what x4 named.
  EXPECT_EQ(values[3].death, kSurvives);
  EXPECT_EQ(values[3].becomes, kNoValue);
}

TEST(ImportDtr, NamesTheLineOfWhatIsWrong) {
  const std::string log = kDtrLog;
  expect_refused(kDtr, "", "file: the log holds no operator");
  expect_refused(kDtr, "{}", "file:1: INSTRUCTION is missing");
  expect_refused(kDtr, "node1 -- Conv2d", "file:1: not JSON");
  expect_refused(kDtr, with(log, R"("NAME":"x3"})", R"("NAME":"y3"})"),
                 "file:9: the MEMORY of y3 should stand here");
  expect_refused(kDtr, with(log, R"("RELEASE","NAME":"x5")", R"("RELEASE","NAME":"z")"),
                 "file:31: there is nothing called z");
  expect_refused(kDtr, with(log, R"("RELEASE","NAME":"x5")", R"("RELEASE","NAME":"x4")"),
                 "file:31: x4 was released in line 18");
  expect_refused(kDtr, with(log, R"("DST":"x2")", R"("DST":"x1")"),
                 "file:6: the name x1 is given a second time");
  expect_refused(kDtr, with(log, R"("TIME":"300")", R"("TIME":"-300")"), "file:19: TIME is '-300'");
  expect_refused(kDtr, with(log, R"("TIME":"300")", R"("TIME":300)"),
                 "file:19: TIME is 300 instead of text");
  expect_refused(kDtr, with(log, R"("MUTATE":[0])", R"("MUTATE":[1])"),
                 "file:19: MUTATE[0] is 1 instead of a whole number from 0 to 0");
  expect_refused(kDtr, with(log, R"("ALIAS":"0")", R"("ALIAS":"1")"),
                 "file:17: ALIAS is 1, but the operator has 1 arguments");
  expect_refused(kDtr, with(log, "COPY_FROM", "JUMP"), "file:29: unknown instruction 'JUMP'");
  expect_refused(kDtr, log.substr(0, log.find(R"({"INSTRUCTION":"MEMORY","MEMORY":"8")")),
                 "the log ends before the MEMORY of x6");
}

// ------------------------------------------------------------------------------------ PipeDream

TEST(ImportPipedream, RunsLayersForwardAndBackward) {
  const StepProfile profile = kPipedream(kPipedreamGraph);
  // v1 is the first activation, overwritten by the ReLU; v6 and v7 are gradients of parameters. The
  // sum passes the gradient v5 on to both of its inputs.
  EXPECT_EQ(drawing(profile),
            "Conv2d(v0) > v1; ReLU(v1!); Conv2d(v1) > v2; Add(v2 v1) > v3; Linear(v3 v4) > v5; "
            "Linear backward(v5 v3 v4) > v6 > v7; Add backward(v6); "
            "Conv2d backward(v6 v1) > v8; ReLU backward(v8 v1) > v9; Conv2d backward(v9 v0) > v10");
  EXPECT_NEAR(step_seconds(profile), 14.875e-3, 1e-9);  // Without the input.
  EXPECT_EQ(profile.kinds[1].arguments, "inplace");     // Whoever shows it adds the parentheses.
  const auto& values = profile.tape.values;
  EXPECT_EQ(values[1].death, 8U);
  EXPECT_EQ(values[2].death, 3U);
  EXPECT_EQ(values[0].becomes, 0U);
  EXPECT_EQ(profile.class_of_value[10], StorageClass::kGradient);
  EXPECT_EQ(values[10].death, kSurvives);
}

TEST(ImportPipedream, WritesInPlaceOnlyWhatNobodyElseReads) {
  // The ReLU's input now goes into the sum as well.
  const std::string graph = with(kPipedreamGraph, "\tnode3 -- node5", "\tnode2 -- node5");
  EXPECT_THAT(drawing(kPipedream(graph)),
              StartsWith("Conv2d(v0) > v1; ReLU(v1) > v2; Conv2d(v2) > v3; Add(v3 v1) > v4; "));
}

TEST(ImportPipedream, AddsGradientsInPlaceOnlyWhereNobodyElseHoldsThem) {
  const std::string graph =
      "node1 -- Conv2d -- forward_compute_time=1, backward_compute_time=1, "
      "activation_size=4194304, parameter_size=0\n"
      "node2 -- ReLU -- forward_compute_time=1, backward_compute_time=1, "
      "activation_size=4194304, parameter_size=0\n"
      "node3 -- Tanh -- forward_compute_time=1, backward_compute_time=1, "
      "activation_size=4194304, parameter_size=0\n"
      "node4 -- Add -- forward_compute_time=1, backward_compute_time=1, "
      "activation_size=4194304, parameter_size=0\n"
      "node5 -- ReLU -- forward_compute_time=1, backward_compute_time=1, "
      "activation_size=4194304, parameter_size=0\n"
      "\tnode1 -- node2\n\tnode1 -- node3\n\tnode2 -- node4\n\tnode1 -- node4\n\tnode4 -- node5\n";
  // The sum passes v5 on to the first ReLU and to the convolution, whose gradient the tanh would
  // add to: v6 becomes its own. The first ReLU then adds to that in place.
  const StepProfile profile = kPipedream(graph);
  EXPECT_THAT(drawing(profile),
              ::testing::EndsWith("Add backward(v5); Tanh backward(v2 v5) > v6; "
                                  "ReLU backward(v5 v1 v6!); Conv2d backward(v6)"));
}

TEST(ImportPipedream, PicksOneOfSeveralOutputs) {
  const std::string graph =
      "node1 -- LSTM(1, 1) -- forward_compute_time=1, backward_compute_time=1, "
      "activation_size=[2097152.0; 4194304.0], parameter_size=0\n"
      "node2 -- __getitem__(1) -- forward_compute_time=0, backward_compute_time=0, "
      "activation_size=4194304.0, parameter_size=0\n"
      "node3 -- Tanh -- forward_compute_time=1, backward_compute_time=1, "
      "activation_size=4194304.0, parameter_size=0\n"
      "\tnode1 -- node2\n\tnode2 -- node3\n";
  EXPECT_EQ(drawing(kPipedream(graph)),
            "LSTM() > v0 > v1; Tanh(v1) > v2; Tanh backward(v2) > v3; LSTM backward(v3 v0 v1)");
}

// A gate: what a tensor is multiplied by is computed from it, and too small to be a value.
TEST(ImportPipedream, KeepsWhatOperatorsWaitForThroughSmallTensors) {
  const auto node = [](int number, const char* kind, const char* bytes) {
    return message("node{} -- {} -- forward_compute_time=1, backward_compute_time=1, "
                   "activation_size={}, parameter_size=0\n",
                   number, kind, bytes);
  };
  const std::string graph = node(1, "Conv2d", "6291456") + node(2, "AvgPool2d", "64") +
                            node(3, "Sigmoid", "64") + node(4, "Conv2d", "6291456") +
                            node(5, "Mul", "6291456") +
                            "\tnode1 -- node2\n\tnode2 -- node3\n\tnode1 -- node4\n"
                            "\tnode4 -- node5\n\tnode3 -- node5\n";
  const StepProfile profile = kPipedream(graph);
  // The sigmoid has no pages and belongs to the pool.
  EXPECT_THAT(drawing(profile), StartsWith("Conv2d() > v0; AvgPool2d(v0); Conv2d(v0) > v1; "
                                           "Mul(v1) > v2; Mul backward"));
  ASSERT_TRUE(profile.hidden_dependences);
  std::set<std::pair<OpIndex, OpIndex>> forward;
  for (const HiddenDependence& each : *profile.hidden_dependences)
    if (each.after <= 3) forward.emplace(each.before, each.after);
  EXPECT_THAT(forward, ElementsAre(std::pair{1U, 3U}));
  EXPECT_TRUE(kDtr(kDtrLog).hidden_dependences);
  EXPECT_TRUE(kPiper(kPiperLayers).hidden_dependences);
}

TEST(ImportPipedream, NamesTheLineOfWhatIsWrong) {
  const std::string graph = kPipedreamGraph;
  expect_refused(kPipedream, "", "file: the graph holds no layer that runs");
  expect_refused(kPipedream, "{\"a\": 1}", "file:1: a node should read");
  expect_refused(kPipedream, graph + "\tnode10 -- node3\n", "the graph is cyclic: node");
  expect_refused(kPipedream, graph + "\tnode2 -- node2\n", "file:3: the graph is cyclic: node2");
  expect_refused(kPipedream, with(graph, "\tnode5 -- node6\n", ""),
                 "file:7: the graph is disconnected: no edges lead from node2 to node6");
  EXPECT_NO_THROW(kPipedream(with(graph, "\tnode1 -- node2\n", "")));  // Data that nobody reads.
  expect_refused(kPipedream, graph + "\tnode2 -- node99\n",
                 "file:15: there is no node called node99");
  expect_refused(kPipedream, graph + "\tnode2 -- node3\n",
                 "file:15: the edge from node2 to node3 comes a second time");
  expect_refused(kPipedream, graph + "\tnode\xff -- node2\n", "file:15: the line holds bytes");
  expect_refused(kPipedream, graph + "\tnode2\n", "file:15: an edge should read");
  expect_refused(kPipedream, with(graph, "node3 -- ReLU", "node2 -- ReLU"),
                 "file:4: node2 comes a second time");
  expect_refused(kPipedream, with(graph, "time=0.250", "time=-0.250"),
                 "file:4: forward_compute_time is '-0.250' instead of a number from 0");
  expect_refused(kPipedream, with(graph, "time=0.250", "time=nan"), "file:4: forward_compute_time");
  expect_refused(kPipedream, with(graph, "=4194304.0, ", "=0.0, "),
                 "file:1: node10 takes time, but its activation_size is 0");
  expect_refused(kPipedream, with(graph, "parameter_size", "parameters"),
                 "file:1: parameter_size is missing");
}

// ---------------------------------------------------------------------------------------- Piper

TEST(ImportPiper, MakesAChainOfLayers) {
  const StepProfile profile = kPiper(kPiperLayers);
  // v0 mask, v1 and v4 parameters, v2 output of the first layer, v3 and v5 what is kept inside, v6
  // a gradient; v7 and v8 gradients of parameters.
  EXPECT_EQ(drawing(profile), "Layer(v0 v1) > v2 > v3; Layer(v0 v2 v4) > v5; "
                              "Layer backward(v5 v4 v0 v2) > v6; Layer accumulate(v7!); "
                              "Layer backward(v6 v3 v1 v0); Layer accumulate(v8!)");
  // What the layer takes longer with recomputation is its forward time.
  EXPECT_THAT(times(profile),
              ElementsAre(110'000'000, 100'000'000, 200'000'000, 0, 190'000'000, 0));
  // The layers keep 20 and 22 MiB, of which the mask of 2 MiB counts once, have 16 MiB each for
  // ever, and the gradient between them is as large as what the second one keeps less the mask, 4
  // MiB.
  EXPECT_EQ(peak_bytes(profile), (20 + 22 - 2 + 4 + 2 * 16) * 1048576.0);
}

TEST(ImportPiper, ScalesWithMicroBatches) {
  const StepProfile profile = import_piper(kPiperLayers, "file", {1, 3});
  EXPECT_NEAR(step_seconds(profile), 1.8, 1e-6);
  EXPECT_EQ(peak_bytes(profile), (3 * (20 + 22 - 2 + 4) + 2 * 16) * 1048576.0);
}

TEST(ImportPiper, TakesAnotherDegree) {
  const StepProfile profile = import_piper(kPiperLayers, "file", {2, 1});
  EXPECT_NEAR(step_seconds(profile), 0.4, 1e-6);
}

TEST(ImportPiper, NamesThePlaceOfWhatIsWrong) {
  const std::string text = kPiperLayers;
  EXPECT_THROW(import_piper(text, "file", {1, 0}), ConfigError);
  expect_refused(
      [](const std::string& t) {
        return import_piper(t, "file", {3, 1});
      },
      text, "file: nodes[0].TMPCs has no tensor-parallel degree 3 (known: 1, 2)");
  expect_refused(kPiper, "{}", "file: nodes is missing");
  expect_refused(kPiper, with(text, R"("timePerSample": 0.3)", R"("timePerSample": -0.3)"),
                 "file: nodes[1].TMPCs.1[0].timePerSample is -0.3 instead of a number from 0");
  expect_refused(kPiper, with(text, R"("id": 1,)", R"("id": 7,)"),
                 "file: nodes[1].id is 7 for a second time");
  expect_refused(kPiper,
                 with(text, R"("sourceId": 1, "destId": 2)", R"("sourceId": 1, "destId": 9)"),
                 "file: edges[2].destId: there is no node 9");
  expect_refused(kPiper,
                 with(text, R"("sourceId": 1, "destId": 2)", R"("sourceId": 2, "destId": 2)"),
                 "the graph is cyclic: the node 2 (Layer) depends on itself");
  const std::size_t second = text.find(",\n {\"sourceId\": 7, \"destId\": 2");
  expect_refused(kPiper, text.substr(0, second) + "]}",
                 "file: edges: the graph is disconnected: no edges tie the node 2 (Layer)");
  expect_refused(kPiper, with(text, R"("memoryUsageA": 20971520.0)", R"("memoryUsageA": 0.0)"),
                 "the layer takes time, but its memoryUsageA is 0");
  expect_refused(kPiper,
                 with(text, R"("id": "vanilla", "timePerSample": 0.3)",
                      R"("id": "recomp", "timePerSample": 0.3)"),
                 "has no costs without recomputation");
}

// ---------------------------------------------------------------------------------- damaged text

struct Sample {
  std::string name;
  std::string text;
  Import read;
};

void PrintTo(const Sample& sample, std::ostream* out) { *out << sample.name; }

class DamagedFiles : public ::testing::TestWithParam<Sample> {};

// Whatever happens to a file: it is refused with its name, or what is read is sound.
TEST_P(DamagedFiles, AreRefusedOrSound) {
  constexpr int kCases = 4000;
  const Sample& sample = GetParam();
  DamagedText damaged(20261122);
  int refused = 0;
  for (int i = 0; i < kCases; ++i) {
    const std::string text = damaged(sample.text);
    try {
      check(sample.read(text));
    } catch (const ConfigError& error) {
      ++refused;
      ASSERT_THAT(error.what(), StartsWith("file")) << text;
      const std::string said = error.what();
      ASSERT_LT(said.size(), 400U) << text;
      ASSERT_TRUE(std::none_of(said.begin(), said.end(), [](char byte) {
        return static_cast<unsigned char>(byte) < ' ';
      })) << said;
    } catch (const std::exception& error) {
      FAIL() << "neither refused nor sound: " << error.what() << "\n" << text;
    }
  }
  // Else the damage was none.
  EXPECT_GT(refused, kCases / 4);
  EXPECT_LT(refused, kCases);
}

TEST_P(DamagedFiles, AreRefusedOrSoundWhereverTheyAreCut) {
  const Sample& sample = GetParam();
  std::size_t refused = 0;
  for (std::size_t length = 0; length < sample.text.size(); ++length) {
    try {
      check(sample.read(sample.text.substr(0, length)));
    } catch (const ConfigError& error) {
      ++refused;
      ASSERT_THAT(error.what(), StartsWith("file")) << length;
    }
  }
  EXPECT_GT(refused, sample.text.size() / 4);
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedFiles,
    ::testing::Values(Sample{"Profile", to_text(small_profile()),
                             [](const std::string& text) { return parse_profile(text, "file"); }},
                      Sample{"Dtr", kDtrLog, kDtr},
                      Sample{"Pipedream", kPipedreamGraph, kPipedream},
                      Sample{"Piper", kPiperLayers, kPiper}),
    [](const ::testing::TestParamInfo<Sample>& sample) { return sample.param.name; });

}  // namespace
}  // namespace spillway::profile
