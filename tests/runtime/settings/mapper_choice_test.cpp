#include "spillway/runtime/settings/mapper_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "spillway/base/error.h"
#include "support/golden_part.h"

namespace spillway::runtime {
namespace {

using memory::MapperKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MapperChoice : public testing::Test {
 protected:
  /// Which of them work; what is probed is noted.
  MapperSurroundings with(std::vector<MapperKind> viable) {
    MapperSurroundings surroundings;
    surroundings.probe = [this, viable](MapperKind kind) {
      probed_.push_back(kind);
      for (const MapperKind each : viable)
        if (each == kind) return memory::MapperProbe{kind, true, {}};
      return memory::MapperProbe{kind, false, "no luck with it"};
    };
    return surroundings;
  }

  std::string refusal(const std::string& requested, const MapperSurroundings& surroundings) {
    try {
      choose_mapper(requested, surroundings);
    } catch (const UnsupportedError& error) {
      return error.what();
    }
    return {};
  }

  std::vector<MapperKind> probed_;
};

// A debugger stopped in the probe of a mapper that nobody needed.
TEST_F(MapperChoice, ProbesNothingBehindTheFirstThatWorks) {
  const auto surroundings = with({MapperKind::kUserfaultfd, MapperKind::kSignal});
  EXPECT_EQ(choose_mapper("auto", surroundings), MapperKind::kUserfaultfd);
  EXPECT_THAT(probed_, ElementsAre(MapperKind::kUserfaultfd));
}

TEST_F(MapperChoice, GoesOnToWhatWorks) {
  EXPECT_EQ(choose_mapper("auto", with({MapperKind::kCopy})), MapperKind::kCopy);
  EXPECT_EQ(probed_.size(), 4U);
}

TEST_F(MapperChoice, TakesTheOneThatIsAskedFor) {
  EXPECT_EQ(choose_mapper("signal", with({})), MapperKind::kSignal);
  EXPECT_THAT(probed_, IsEmpty());
  EXPECT_THROW(choose_mapper("signals", with({})), ConfigError);
}

TEST_F(MapperChoice, TellsWhyNoneWorks) {
  GoldenPart golden;
  golden.add(refusal("auto", with({})));
}

TEST_F(MapperChoice, RefusesValgrindByName) {
  GoldenPart golden;
  MapperSurroundings surroundings = with({MapperKind::kUserfaultfd});
  surroundings.is_under_valgrind = true;
  golden.add(refusal("auto", surroundings));
  golden.add(refusal("userfaultfd", surroundings));
  EXPECT_EQ(choose_mapper("copy", surroundings), MapperKind::kCopy);
  EXPECT_THAT(probed_, IsEmpty());
}

TEST_F(MapperChoice, TellsADebuggersLineWhereSignalsAreNeeded) {
  for (const bool needs_signals : {true, false}) {
    MapperSurroundings surroundings =
        with({needs_signals ? MapperKind::kSignal : MapperKind::kUserfaultfd});
    surroundings.is_traced = true;
    testing::internal::CaptureStderr();
    choose_mapper("auto", surroundings);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("handle SIGSEGV nostop noprint pass") != std::string::npos, needs_signals);
  }
}

}  // namespace
}  // namespace spillway::runtime
