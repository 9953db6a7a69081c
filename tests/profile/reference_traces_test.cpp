#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "profile_sums.h"
#include "spillway/profile/import/trace_import.h"
#include "support/file_text.h"

namespace spillway::profile {
namespace {

/// The published traces, which are no part of this repository.
class ReferenceTraces : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("SPILLWAY_REFERENCE_DATA");
    if (folder == nullptr || *folder == '\0')
      GTEST_SKIP() << "SPILLWAY_REFERENCE_DATA does not name the folder with the published traces";
    folder_ = folder;
  }

  std::string text_of(const std::string& file) const { return file_text(folder_ / file); }

  StepProfile dtr(const std::string& file) const {
    return import_dtr(text_of("dtr/" + file), file);
  }
  StepProfile pipedream(const std::string& file) const {
    return import_pipedream(text_of("pipedream/" + file), file);
  }

 private:
  std::filesystem::path folder_;
};

// Peaks as published in the repository dtr-prototype (unrestricted PyTorch).
TEST_F(ReferenceTraces, OfDtrReachTheMeasuredPeaks) {
  const StepProfile densenet = dtr("densenet121-b84.log");
  EXPECT_NEAR(peak_bytes(densenet), 11.03e9, 0.01 * 11.03e9);
  EXPECT_NEAR(step_seconds(densenet), 0.355, 0.001);
  const StepProfile unet = dtr("unet-b6.log");
  EXPECT_NEAR(peak_bytes(unet), 8.42e9, 0.01 * 8.42e9);
  EXPECT_NEAR(step_seconds(unet), 0.435, 0.001);
  for (const StepProfile* profile : {&densenet, &unet})
    EXPECT_NEAR(paged_peak_bytes(*profile), peak_bytes(*profile), 0.005 * peak_bytes(*profile));
}

// Sums of all layers but the inputs, as the data's README tells them.
TEST_F(ReferenceTraces, OfPipedreamKeepTheirTimes) {
  EXPECT_NEAR(step_seconds(pipedream("vgg16.graph.txt")), 0.6725, 0.0001);
  EXPECT_NEAR(step_seconds(pipedream("resnet50.graph.txt")), 0.4434, 0.0001);
  for (const char* name : {"alexnet", "vgg16", "resnet50", "densenet121", "gnmt"}) {
    const StepProfile profile = pipedream(std::string(name) + ".graph.txt");
    EXPECT_NEAR(paged_peak_bytes(profile), peak_bytes(profile), 0.005 * peak_bytes(profile))
        << name;
  }
}

TEST_F(ReferenceTraces, OfPiperAddUpToTheirLayers) {
  const std::string text = text_of("piper/bert32a100.json");
  const auto json = nlohmann::json::parse(text);
  for (const std::uint32_t degree : {1U, 2U, 4U, 8U}) {
    const StepProfile profile = import_piper(text, "bert32a100.json", {degree, 1});
    double time = 0.0;
    double memory = 0.0;
    for (const auto& node : json.at("nodes")) {
      const auto& plain = node.at("TMPCs").at(std::to_string(degree)).at(0);
      time += plain.at("timePerSample").get<double>();
      memory += plain.at("memoryUsageA").get<double>() + plain.at("memoryUsageB").get<double>();
    }
    // All 32 layers count the mask as theirs; there is one.
    memory -= 31.0 * 16'777'216;
    EXPECT_NEAR(step_seconds(profile), time, 1e-6);
    EXPECT_NEAR(peak_bytes(profile), memory, 0.01 * memory);
  }
}

}  // namespace
}  // namespace spillway::profile
