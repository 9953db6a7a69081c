// Models of the profiles that PipeDream and Piper published.
#include <gmock/gmock.h>

#include <cstdlib>

#include "spillway/planner/forward_stash.h"
#include "spillway/planner/job/measured_model.h"
#include "spillway/profile/import/trace_import.h"
#include "support/file_text.h"
#include "support/published_chain.h"

namespace spillway::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

struct Network {
  const char* name;
  std::size_t layers;  ///< But views, which do not run.
};

class PublishedModels : public ::testing::TestWithParam<Network> {
 protected:
  void SetUp() override {
    file_ = published_profile(GetParam().name);
    if (file_.empty())
      GTEST_SKIP() << "set SPILLWAY_REFERENCE_DATA to the folder that holds pipedream/"
                   << GetParam().name << ".graph.txt";
    model_ = measured_model(profile::import_pipedream(file_text(file_), file_));
  }

  std::string file_;
  MeasuredModel model_;
};
INSTANTIATE_TEST_SUITE_P(Networks, PublishedModels,
                         ::testing::Values(Network{"alexnet", 20}, Network{"vgg16", 38},
                                           Network{"resnet50", 174}, Network{"densenet121", 426},
                                           Network{"gnmt", 24}));

// The gradient that a pooling layer sends back is larger than all that the layers behind it leave.
TEST_P(PublishedModels, HaveTheLayersThatRunForward) {
  ASSERT_THAT(model_.chain.layers, SizeIs(GetParam().layers));
  double forward = 0.0;
  double backward = 0.0;
  for (const ModelLayer& layer : model_.chain.layers) {
    EXPECT_THAT(layer.name, Not(HasSubstr("backward")));
    forward += layer.forward_seconds;
    backward += layer.backward_seconds;
  }
  double published_forward = 0.0;
  double published_backward = 0.0;
  for (const PublishedChain::Block& node : PublishedChain(file_).nodes) {
    published_forward += node.forward * 1e-3;
    published_backward += node.backward * 1e-3;
  }
  EXPECT_NEAR(forward, published_forward, 1e-9);
  EXPECT_NEAR(backward, published_backward, 1e-9);
}

// All their operators may run again, and what they write in place was made in the same step.
TEST_P(PublishedModels, CanComputeAgainAllThatTheyKeep) {
  std::size_t keeping = 0;
  for (const ModelLayer& layer : model_.chain.layers) {
    if (layer.stash == Bytes()) continue;
    ++keeping;
    ASSERT_THAT(layer.recompute, SizeIs(1)) << layer.name;
    EXPECT_EQ(layer.recompute[0].stash, Bytes()) << layer.name;
    EXPECT_GE(layer.recompute[0].seconds, layer.forward_seconds) << layer.name;
  }
  EXPECT_GT(keeping, GetParam().layers / 2);
}

TEST(PublishedVgg, RunsConvolutionsAgainWithTheReluThatOverwritesThem) {
  const std::string file = published_profile("vgg16");
  if (file.empty())
    GTEST_SKIP()
        << "set SPILLWAY_REFERENCE_DATA to the folder that holds pipedream/vgg16.graph.txt";
  const ModelChain chain = measured_model(profile::import_pipedream(file_text(file), file)).chain;
  std::size_t convolutions = 0;
  for (std::size_t i = 0; i + 1 < chain.layers.size(); ++i) {
    if (!chain.layers[i].name.starts_with("Conv2d")) continue;
    ++convolutions;
    ASSERT_TRUE(chain.layers[i + 1].name.starts_with("ReLU"));
    EXPECT_EQ(chain.layers[i + 1].stash, Bytes());
    EXPECT_NEAR(chain.layers[i].recompute[0].seconds,
                chain.layers[i].forward_seconds + chain.layers[i + 1].forward_seconds, 1e-12);
  }
  EXPECT_EQ(convolutions, 13U);
}

TEST(PublishedBert, HasAllItsLayers) {
  const char* const folder = std::getenv("SPILLWAY_REFERENCE_DATA");
  if (folder == nullptr || *folder == '\0')
    GTEST_SKIP() << "set SPILLWAY_REFERENCE_DATA to the folder that holds piper/bert32a100.json";
  const std::string file = std::string(folder) + "/piper/bert32a100.json";
  const profile::StepProfile profile = profile::import_piper(file_text(file), file);
  EXPECT_EQ(find_stash(profile.tape).turn, 32U);  // The last of 34 takes no time and keeps nothing.
  const ModelChain chain = measured_model(profile).chain;
  EXPECT_THAT(chain.layers, SizeIs(34));
  double seconds = 0.0;
  for (const ModelLayer& layer : chain.layers)
    seconds += layer.forward_seconds + layer.backward_seconds;
  EXPECT_NEAR(seconds, 0.972864, 1e-6);  // All of timePerSample.
}

}  // namespace
}  // namespace spillway::planner
