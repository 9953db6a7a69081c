#include <gmock/gmock.h>

#include "spillway/base/error.h"
#include "spillway/memory/frame_mapper.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::memory {
namespace {

TEST(MapperKind, EveryNameLeadsBackToItsKind) {
  for (const MapperProbe& probe : probe_mappers()) {
    EXPECT_EQ(mapper_kind_from(name_of(probe.kind)), probe.kind);
  }
  for (const auto& known : mapper_kinds()) EXPECT_EQ(name_of(known.value), known.name);
}

TEST(MapperKind, AnUnknownNameIsRefusedWithTheNearestOne) {
  GoldenPart golden;
  const auto refusal = [](const char* name) -> std::string {
    return error_text<ConfigError>([&] { mapper_kind_from(name); });
  };
  golden.add(refusal("signals"));
  golden.add(refusal("userfault"));
  golden.add(refusal("userfaultfd_user"));
  golden.add(refusal(""));
}

TEST(ProbeMappers, TriesAllKindsBestFirstAndGivesAReasonForEachRefusal) {
  const auto probes = probe_mappers();
  ASSERT_EQ(probes.size(), 4U);
  EXPECT_EQ(probes[0].kind, MapperKind::kUserfaultfd);
  EXPECT_EQ(probes[2].kind, MapperKind::kSignal);
  EXPECT_EQ(probes[3].kind, MapperKind::kCopy);
  for (const MapperProbe& probe : probes) {
    EXPECT_EQ(probe.is_viable, probe.reason.empty()) << probe.reason;
    EXPECT_EQ(probe.reason.find("went wrong"), std::string::npos) << "offered, but broken";
  }
}

}  // namespace
}  // namespace spillway::memory
