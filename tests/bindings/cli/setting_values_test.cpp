#include "setting_values.h"

#include <gtest/gtest.h>

#include "spillway/base/error.h"

namespace spillway::cli {
namespace {

template <typename Read>
std::string refusal(const Read& read) {
  try {
    read();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CountIn, TakesWholeNumbersWithinLimits) {
  EXPECT_EQ(count_in("--depths", "1"), 1U);
  EXPECT_EQ(count_in("--depths", "1000000"), kMostCount);
  EXPECT_EQ(count_in("--kind", "8", 1, 8), 8U);
  for (const char* text : {"", "0", "-1", "1000001", "99999999999", "0x10", " 1", "1.0", "few"})
    EXPECT_EQ(refusal([&] { count_in("--depths", text); }),
              message("--depths: '{}' is not a whole number from 1 to 1000000", text));
  EXPECT_EQ(refusal([] { count_in("--kind", "9", 1, 8); }),
            "--kind: '9' is not a whole number from 1 to 8");
}

TEST(CommaSeparated, StandBetweenCommas) {
  const auto words = [](auto... each) { return std::vector<std::string>{each...}; };
  EXPECT_EQ(comma_separated("1MiB"), words("1MiB"));
  EXPECT_EQ(comma_separated("1,4,16"), words("1", "4", "16"));
  // What reads them refuses the empty ones.
  EXPECT_EQ(comma_separated(""), words(""));
  EXPECT_EQ(comma_separated(",1,"), words("", "1", ""));
}

TEST(SizeIn, NamesTheOption) {
  EXPECT_EQ(size_in("--file-size", "8MiB"), Bytes(8 << 20));
  EXPECT_EQ(refusal([] { size_in("--file-size", "8"); }),
            "--file-size: size without a unit: '8' (write for example 8MiB or 8GiB)");
}

}  // namespace
}  // namespace spillway::cli
