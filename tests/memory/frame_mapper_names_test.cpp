#include <gmock/gmock.h>

#include "spillway/base/error.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::memory {
namespace {

using ::testing::HasSubstr;

TEST(MapperKind, EveryNameLeadsBackToItsKind) {
  for (const MapperProbe& probe : probe_mappers()) {
    EXPECT_EQ(mapper_kind_from(name_of(probe.kind)), probe.kind);
  }
  for (const auto& known : mapper_kinds()) EXPECT_EQ(name_of(known.value), known.name);
}

TEST(MapperKind, AnUnknownNameIsRefusedWithTheNearestOne) {
  const auto refusal = [](const char* name) -> std::string {
    try {
      mapper_kind_from(name);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("signals"), HasSubstr("mapper 'signals' (did you mean 'signal'?)"));
  EXPECT_THAT(refusal("userfault"), HasSubstr("did you mean 'userfaultfd'?"));
  EXPECT_THAT(refusal("userfaultfd_user"), HasSubstr("did you mean 'userfaultfd-user'?"));
  EXPECT_THAT(refusal(""), HasSubstr("(known: userfaultfd userfaultfd-user signal copy)"));
}

TEST(ProbeMappers, TriesAllKindsBestFirstAndGivesAReasonForEachRefusal) {
  const auto probes = probe_mappers();
  ASSERT_EQ(probes.size(), 4U);
  EXPECT_EQ(probes[0].kind, MapperKind::kUserfaultfd);
  EXPECT_EQ(probes[2].kind, MapperKind::kSignal);
  EXPECT_EQ(probes[3].kind, MapperKind::kCopy);
  for (const MapperProbe& probe : probes) {
    EXPECT_EQ(probe.is_viable, probe.reason.empty()) << probe.reason;
    EXPECT_THAT(probe.reason, ::testing::Not(HasSubstr("went wrong"))) << "offered, but broken";
  }
}

}  // namespace
}  // namespace spillway::memory
