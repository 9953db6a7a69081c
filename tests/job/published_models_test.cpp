// Models of the profiles that PipeDream and Piper published.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "spillway/planner/forward_stash.h"
#include "spillway/planner/job/measured_model.h"
#include "spillway/profile/import/trace_import.h"
#include "support/file_text.h"
#include "support/published_chain.h"
#include "support/reference_data.h"

namespace spillway::job {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

struct Network {
  const char* name;
  std::size_t layers;             ///< But views, which do not run.
  std::size_t layers_of_extract;  ///< The same.
};

/// A model as it was published, or the beginning of it.
struct PublishedModel {
  std::string file;
  MeasuredModel model;
  std::size_t layers = 0;
};

std::vector<PublishedModel> models_of(const Network& network) {
  std::vector<PublishedModel> models;
  for (const ReferenceFile& file :
       reference_files(std::string("pipedream/") + network.name + ".graph.txt"))
    models.push_back({file.path,
                      measured_model(profile::import_pipedream(file_text(file.path), file.path)),
                      file.is_whole ? network.layers : network.layers_of_extract});
  return models;
}

class PublishedModels : public ::testing::TestWithParam<Network> {};
INSTANTIATE_TEST_SUITE_P(Networks, PublishedModels,
                         ::testing::Values(Network{"alexnet", 20, 20}, Network{"vgg16", 38, 38},
                                           Network{"resnet50", 174, 47},
                                           Network{"densenet121", 426, 47},
                                           Network{"gnmt", 24, 24}));

// The gradient that a pooling layer sends back is larger than all that the layers behind it leave.
TEST_P(PublishedModels, HaveTheLayersThatRunForward) {
  for (const PublishedModel& each : models_of(GetParam())) {
    SCOPED_TRACE(each.file);
    ASSERT_THAT(each.model.chain.layers, SizeIs(each.layers));
    double forward = 0.0;
    double backward = 0.0;
    for (const partition::ModelLayer& layer : each.model.chain.layers) {
      EXPECT_THAT(layer.name, Not(HasSubstr("backward")));
      forward += layer.forward_seconds;
      backward += layer.backward_seconds;
    }
    double published_forward = 0.0;
    double published_backward = 0.0;
    for (const PublishedChain::Block& node : PublishedChain(each.file).nodes) {
      published_forward += node.forward * 1e-3;
      published_backward += node.backward * 1e-3;
    }
    EXPECT_NEAR(forward, published_forward, 1e-9);
    EXPECT_NEAR(backward, published_backward, 1e-9);
  }
}

// All their operators may run again, and what they write in place was made in the same step.
TEST_P(PublishedModels, CanRecomputeAllThatTheyKeep) {
  for (const PublishedModel& each : models_of(GetParam())) {
    SCOPED_TRACE(each.file);
    std::size_t keeping = 0;
    for (const partition::ModelLayer& layer : each.model.chain.layers) {
      if (layer.stash == Bytes()) continue;
      ++keeping;
      ASSERT_THAT(layer.recompute, SizeIs(1)) << layer.name;
      EXPECT_EQ(layer.recompute[0].stash, Bytes()) << layer.name;
      EXPECT_GE(layer.recompute[0].seconds, layer.forward_seconds) << layer.name;
    }
    EXPECT_GT(keeping, each.layers / 2);
  }
}

TEST(PublishedVgg, RunsConvolutionsAgainWithTheReluThatOverwritesThem) {
  for (const PublishedModel& each : models_of({"vgg16", 38, 38})) {
    SCOPED_TRACE(each.file);
    const std::vector<partition::ModelLayer>& layers = each.model.chain.layers;
    std::size_t convolutions = 0;
    for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
      if (!layers[i].name.starts_with("Conv2d")) continue;
      ++convolutions;
      ASSERT_TRUE(layers[i + 1].name.starts_with("ReLU"));
      EXPECT_EQ(layers[i + 1].stash, Bytes());
      EXPECT_NEAR(layers[i].recompute[0].seconds,
                  layers[i].forward_seconds + layers[i + 1].forward_seconds, 1e-12);
    }
    EXPECT_EQ(convolutions, 13U);
  }
}

TEST(PublishedBert, HasAllItsLayers) {
  for (const ReferenceFile& file : reference_files("piper/bert32a100.json")) {
    SCOPED_TRACE(file);
    const std::size_t transformers = file.is_whole ? 32 : 8;
    const profile::StepProfile profile = profile::import_piper(file_text(file.path), file.path);
    // Behind the embedding and them comes one that takes no time and keeps nothing.
    EXPECT_EQ(planner::find_stash(profile.tape).forward_end, transformers);
    const partition::ModelChain chain = measured_model(profile).chain;
    EXPECT_THAT(chain.layers, SizeIs(transformers + 2));
    double seconds = 0.0;
    for (const partition::ModelLayer& layer : chain.layers)
      seconds += layer.forward_seconds + layer.backward_seconds;
    EXPECT_NEAR(seconds, file.is_whole ? 0.972864 : 0.244521, 1e-6);  // All of timePerSample.
  }
}

}  // namespace
}  // namespace spillway::job
