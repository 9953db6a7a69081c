#include "spillway/planner/job/job_file.h"

#include <gmock/gmock.h>

#include <initializer_list>

#include "even_jobs.h"
#include "spillway/base/error.h"
#include "support/golden_part.h"

namespace spillway::job {
namespace {

partition::ModelChain named(std::initializer_list<const char*> names) {
  partition::ModelChain chain = even_chain(static_cast<std::uint32_t>(names.size()));
  std::size_t layer = 0;
  for (const char* name : names) chain.layers[layer++].name = name;
  return chain;
}

TEST(ModelIdentity, IsTheSameOnEveryMachine) {
  const ModelIdentity identity = identity_of(named({"conv", "relu #1"}));
  EXPECT_EQ(identity.layers, 2U);
  EXPECT_EQ(identity.name_hash, 0x3d14f8b33bb56621ULL);  // Reckoned apart from this code.
}

TEST(ModelIdentity, IsOfNamesAndNotOfFigures) {
  const ModelIdentity identity = identity_of(named({"a", "bc"}));
  partition::ModelChain slower = named({"a", "bc"});
  slower.layers[1].forward_seconds *= 2.0;
  slower.layers[1].stash = Bytes(1);
  EXPECT_EQ(identity_of(slower), identity);
  EXPECT_NE(identity_of(named({"bc", "a"})), identity);
  EXPECT_NE(identity_of(named({"ab", "c"})), identity);
  EXPECT_NE(identity_of(named({"a", "bd"})), identity);
  EXPECT_NE(identity_of(named({"a", "bc", "d"})), identity);
}

TEST(RequireSameModel, TellsBothModelsApart) {
  GoldenPart golden;
  const partition::ModelChain chain = named({"conv", "relu #1"});
  const ModelIdentity planned = identity_of(chain);
  require_same_model(planned, "job.json", chain, "net.profile.json");
  const auto call = [&] {
    require_same_model(planned, "job.json", named({"conv"}), "net.profile.json");
  };
  EXPECT_THROW(call(), PlanError);
  golden.add(refusal(call));
}

}  // namespace
}  // namespace spillway::job
