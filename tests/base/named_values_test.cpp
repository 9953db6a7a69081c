#include "spillway/base/named_values.h"

#include <gtest/gtest.h>

#include <array>

namespace spillway {
namespace {

constexpr std::array<Named<int>, 3> kSizes{{{"small", 1}, {"medium", 2}, {"large", 3}}};

std::string refusal(std::string_view name) {
  try {
    value_named(name, kSizes, "size");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(NamedValues, LeadFromNameToValueAndBack) {
  for (const auto& each : kSizes) {
    EXPECT_EQ(value_named(each.name, kSizes, "size"), each.value);
    EXPECT_EQ(name_in(kSizes, each.value), each.name);
  }
  EXPECT_EQ(name_in(kSizes, 4), "unknown");
}

TEST(NamedValues, AreListedAsHelpTextsWriteThem) {
  EXPECT_EQ(alternatives(kSizes), "small|medium|large");
}

TEST(NamedValues, RefuseOtherNamesWithTheNearestOrAll) {
  EXPECT_EQ(refusal("smal"), "unknown size 'smal' (did you mean 'small'?)");
  EXPECT_EQ(refusal("x"), "unknown size 'x' (known: small medium large)");
}

}  // namespace
}  // namespace spillway
