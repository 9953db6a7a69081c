#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "profile_sums.h"
#include "spillway/profile/import/trace_import.h"
#include "support/file_text.h"
#include "support/reference_data.h"

namespace spillway::profile {
namespace {

struct Sums {
  double peak_bytes;
  double seconds;
};

struct DtrLog {
  const char* file;
  Sums whole;    ///< The peak as published in the repository dtr-prototype (unrestricted PyTorch).
  Sums extract;  ///< Added up line by line: nothing is released in extracts.
};

TEST(ReferenceTraces, OfDtrReachTheMeasuredPeaks) {
  for (const DtrLog& log :
       {DtrLog{"densenet121-b84.log", {11.03e9, 0.355}, {1'062'199'040, 0.007766}},
        DtrLog{"unet-b6.log", {8.42e9, 0.435}, {2'447'365'888, 0.034198}}}) {
    for (const ReferenceFile& file : reference_files(std::string("dtr/") + log.file)) {
      SCOPED_TRACE(file);
      const StepProfile profile = import_dtr(file_text(file.path), file.path);
      const Sums& expected = file.is_whole ? log.whole : log.extract;
      EXPECT_NEAR(peak_bytes(profile), expected.peak_bytes, 0.01 * expected.peak_bytes);
      EXPECT_NEAR(step_seconds(profile), expected.seconds, 0.003 * expected.seconds);
      EXPECT_NEAR(paged_peak_bytes(profile), peak_bytes(profile), 0.005 * peak_bytes(profile));
    }
  }
}

struct PipedreamGraph {
  const char* network;
  double whole_seconds;  ///< All layers but the inputs, as the data's README tells; 0: it does not.
  double extract_seconds;
};

TEST(ReferenceTraces, OfPipedreamKeepTheirTimes) {
  for (const PipedreamGraph& graph :
       {PipedreamGraph{"alexnet", 0, 0.085321}, PipedreamGraph{"vgg16", 0.6725, 0.672535},
        PipedreamGraph{"resnet50", 0.4434, 0.181904}, PipedreamGraph{"densenet121", 0, 0.095129},
        PipedreamGraph{"gnmt", 0, 0.089416}}) {
    for (const ReferenceFile& file :
         reference_files(std::string("pipedream/") + graph.network + ".graph.txt")) {
      SCOPED_TRACE(file);
      const StepProfile profile = import_pipedream(file_text(file.path), file.path);
      const double expected = file.is_whole ? graph.whole_seconds : graph.extract_seconds;
      if (expected > 0.0) {
        EXPECT_NEAR(step_seconds(profile), expected, 0.0001);
      }
      EXPECT_NEAR(paged_peak_bytes(profile), peak_bytes(profile), 0.005 * peak_bytes(profile));
    }
  }
}

TEST(ReferenceTraces, OfPiperAddUpToTheirLayers) {
  for (const ReferenceFile& file : reference_files("piper/bert32a100.json")) {
    SCOPED_TRACE(file);
    const std::string text = file_text(file.path);
    const auto json = nlohmann::json::parse(text);
    for (const auto& [degree, costs] : json.at("nodes").at(0).at("TMPCs").items()) {
      const StepProfile profile =
          import_piper(text, file.path, {static_cast<std::uint32_t>(std::stoul(degree)), 1});
      double time = 0.0;
      double memory = 0.0;
      for (const auto& node : json.at("nodes")) {
        const auto& plain = node.at("TMPCs").at(degree).at(0);
        time += plain.at("timePerSample").get<double>();
        memory += plain.at("memoryUsageA").get<double>() + plain.at("memoryUsageB").get<double>();
      }
      // All 32 layers, or 8, count the mask as theirs; there is one.
      memory -= (file.is_whole ? 31.0 : 7.0) * 16'777'216;
      EXPECT_NEAR(step_seconds(profile), time, 1e-6);
      EXPECT_NEAR(peak_bytes(profile), memory, 0.01 * memory);
    }
  }
}

}  // namespace
}  // namespace spillway::profile
