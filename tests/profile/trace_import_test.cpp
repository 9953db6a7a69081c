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
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::profile {
namespace {

using ::testing::ElementsAre;
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

std::string refusal(const Import& import, const std::string& text) {
  return error_text<ConfigError>([&] { import(text); });
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
  GoldenPart golden;
  const std::string log = kDtrLog;
  golden.add(refusal(kDtr, ""));
  golden.add(refusal(kDtr, "{}"));
  golden.add(refusal(kDtr, "node1 -- Conv2d"));
  golden.add(refusal(kDtr, with(log, R"("NAME":"x3"})", R"("NAME":"y3"})")));
  golden.add(refusal(kDtr, with(log, R"("RELEASE","NAME":"x5")", R"("RELEASE","NAME":"z")")));
  golden.add(refusal(kDtr, with(log, R"("RELEASE","NAME":"x5")", R"("RELEASE","NAME":"x4")")));
  golden.add(refusal(kDtr, with(log, R"("DST":"x2")", R"("DST":"x1")")));
  golden.add(refusal(kDtr, with(log, R"("TIME":"300")", R"("TIME":"-300")")));
  golden.add(refusal(kDtr, with(log, R"("TIME":"300")", R"("TIME":300)")));
  golden.add(refusal(kDtr, with(log, R"("MUTATE":[0])", R"("MUTATE":[1])")));
  golden.add(refusal(kDtr, with(log, R"("ALIAS":"0")", R"("ALIAS":"1")")));
  golden.add(refusal(kDtr, with(log, "COPY_FROM", "JUMP")));
  golden.add(refusal(kDtr, log.substr(0, log.find(R"({"INSTRUCTION":"MEMORY","MEMORY":"8")"))));
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
  GoldenPart golden;
  const std::string graph = kPipedreamGraph;
  golden.add(refusal(kPipedream, ""));
  golden.add(refusal(kPipedream, "{\"a\": 1}"));
  golden.add(refusal(kPipedream, graph + "\tnode10 -- node3\n"));
  golden.add(refusal(kPipedream, graph + "\tnode2 -- node2\n"));
  golden.add(refusal(kPipedream, with(graph, "\tnode5 -- node6\n", "")));
  EXPECT_NO_THROW(kPipedream(with(graph, "\tnode1 -- node2\n", "")));  // Data that nobody reads.
  golden.add(refusal(kPipedream, graph + "\tnode2 -- node99\n"));
  golden.add(refusal(kPipedream, graph + "\tnode2 -- node3\n"));
  golden.add(refusal(kPipedream, graph + "\tnode\xff -- node2\n"));
  golden.add(refusal(kPipedream, graph + "\tnode2\n"));
  golden.add(refusal(kPipedream, with(graph, "node3 -- ReLU", "node2 -- ReLU")));
  golden.add(refusal(kPipedream, with(graph, "time=0.250", "time=-0.250")));
  golden.add(refusal(kPipedream, with(graph, "time=0.250", "time=nan")));
  golden.add(refusal(kPipedream, with(graph, "=4194304.0, ", "=0.0, ")));
  golden.add(refusal(kPipedream, with(graph, "parameter_size", "parameters")));
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
  GoldenPart golden;
  const std::string text = kPiperLayers;
  EXPECT_THROW(import_piper(text, "file", {1, 0}), ConfigError);
  golden.add(refusal([](const std::string& t) { return import_piper(t, "file", {3, 1}); }, text));
  golden.add(refusal(kPiper, "{}"));
  golden.add(refusal(kPiper, with(text, R"("timePerSample": 0.3)", R"("timePerSample": -0.3)")));
  golden.add(refusal(kPiper, with(text, R"("id": 1,)", R"("id": 7,)")));
  golden.add(refusal(kPiper,
                     with(text, R"("sourceId": 1, "destId": 2)", R"("sourceId": 1, "destId": 9)")));
  golden.add(refusal(kPiper,
                     with(text, R"("sourceId": 1, "destId": 2)", R"("sourceId": 2, "destId": 2)")));
  const std::size_t second = text.find(",\n {\"sourceId\": 7, \"destId\": 2");
  golden.add(refusal(kPiper, text.substr(0, second) + "]}"));
  golden.add(
      refusal(kPiper, with(text, R"("memoryUsageA": 20971520.0)", R"("memoryUsageA": 0.0)")));
  golden.add(refusal(kPiper, with(text, R"("id": "vanilla", "timePerSample": 0.3)",
                                  R"("id": "recomp", "timePerSample": 0.3)")));
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
