#pragma once

#include <gtest/gtest.h>

#include <string>

#include "spillway/memory/frame_mapper.h"

namespace spillway::swap {

/// Every kind of mapper. Named, not probed: the list of cases is made at build time, where no
/// mapper is to run.
inline auto all_mappers() {
  return testing::Values(memory::MapperKind::kUserfaultfd, memory::MapperKind::kUserfaultfdUser,
                         memory::MapperKind::kSignal, memory::MapperKind::kCopy);
}

/// Its name as a part of the name of a case.
inline std::string mapper_case(const testing::TestParamInfo<memory::MapperKind>& kind) {
  std::string name(memory::name_of(kind.param));
  for (char& letter : name) letter = letter == '-' ? '_' : letter;
  return name;
}

/// Cases that run under one mapper each, and are skipped with the reason where it does not work.
class MapperTest : public testing::TestWithParam<memory::MapperKind> {
 protected:
  void SetUp() override {
    for (const memory::MapperProbe& probe : memory::probe_mappers()) {
      if (probe.kind == GetParam() && !probe.is_viable) GTEST_SKIP() << probe.reason;
    }
  }
};

/// Cases that send real signals, under one mapper each.
class SignalsUnderMapperTest : public MapperTest {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer delivers signals when it sees fit";
#endif
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    MapperTest::SetUp();
  }
};

}  // namespace spillway::swap
