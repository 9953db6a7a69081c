#include "spillway/planner/partition/model_chain.h"

#include <gmock/gmock.h>

namespace spillway::partition {
namespace {

ModelChain two_layers() {
  ModelLayer layer;
  layer.name = "layer";
  layer.forward_seconds = 1.0;
  layer.backward_seconds = 2.0;
  layer.parameters = 40_B;
  layer.static_ratio = 3.0;
  layer.stash = 10_B;
  layer.recompute = {{0.5, 4_B}};
  layer.working_peak = 20_B;
  ModelChain chain;
  chain.layers.assign(2, layer);
  chain.borders = {{0, {1}, 5_B}};
  return chain;
}

TEST(Scaled, GrowsWhatIsOfOneMicroBatch) {
  const ModelChain chain = scaled(two_layers(), 4.0);
  const ModelLayer& layer = chain.layers[1];
  EXPECT_DOUBLE_EQ(layer.forward_seconds, 4.0);
  EXPECT_DOUBLE_EQ(layer.backward_seconds, 8.0);
  EXPECT_EQ(layer.stash, 40_B);
  EXPECT_DOUBLE_EQ(layer.recompute[0].seconds, 2.0);
  EXPECT_EQ(layer.recompute[0].stash, 16_B);
  EXPECT_EQ(layer.working_peak, 80_B);
  EXPECT_EQ(chain.borders[0].bytes, 20_B);
  EXPECT_EQ(layer.parameters, 40_B);
  EXPECT_DOUBLE_EQ(layer.static_ratio, 3.0);
}

TEST(Scaled, RoundsToWholeBytes) {
  const ModelChain chain = scaled(two_layers(), 1.0 / 3.0);
  EXPECT_DOUBLE_EQ(chain.layers[0].forward_seconds, 1.0 / 3.0);
  EXPECT_EQ(chain.layers[0].stash, 3_B);
  EXPECT_EQ(chain.layers[0].working_peak, 7_B);
  EXPECT_EQ(chain.borders[0].bytes, 2_B);
  check(chain);
}

TEST(Scaled, EndsFarBelowWhatBytesCanCount) {
  ModelChain chain = two_layers();
  chain.layers[0].stash = Bytes(std::uint64_t{1} << 60U);
  chain = scaled(chain, 65'536.0);
  EXPECT_EQ(chain.layers[0].stash, Bytes(std::uint64_t{1} << 62U));
  check(chain);
}

}  // namespace
}  // namespace spillway::partition
