#include "setting_values.h"

#include <gtest/gtest.h>

#include <array>

#include "spillway/base/error.h"
#include "spillway/base/transfer_rate.h"

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
  EXPECT_EQ(counts().read("--depths", "1"), 1U);
  EXPECT_EQ(counts().read("--depths", "1000000"), kMostCount);
  EXPECT_EQ(counts(1, 8).read("--kind", "8"), 8U);
  for (const char* text : {"", "0", "-1", "1000001", "99999999999", "0x10", " 1", "1.0", "few"})
    EXPECT_EQ(refusal([&] { counts().read("--depths", text); }),
              message("--depths: '{}' is not a whole number from 1 to 1000000", text));
  EXPECT_EQ(refusal([] { counts(1, 8).read("--kind", "9"); }),
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
  EXPECT_EQ(sizes().read("--file-size", "8MiB"), Bytes(8 << 20));
  EXPECT_EQ(refusal([] { sizes().read("--file-size", "8"); }),
            "--file-size: size without a unit: '8' (write for example 8MiB or 8GiB)");
}

TEST(Numbers, AreWithinLimits) {
  EXPECT_EQ(numbers("SHARE", 0.0, 1.0).read("--duplex", "0.5"), 0.5);
  for (const char* text : {"", "nan", "-1", "1.01", "inf", "5%", " 1", "half"})
    EXPECT_EQ(refusal([&] { numbers("SHARE", 0.0, 1.0).read("--duplex", text); }),
              message("--duplex: '{}' is not a number (SHARE) from 0 to 1", text));
}

TEST(Rates, AreOfALinkOrADisk) {
  EXPECT_EQ(rates().read("--link", "25.5"), TransferRate(25.5e9));
  EXPECT_EQ(rates().read("--link", "0.0001"), kLeastTransferRate);
  for (const char* text : {"0", "-1", "nan", "inf", "1e9", "0.00001", "fast", "12GB/s", " 12"})
    EXPECT_EQ(refusal([&] { rates().read("--link", text); }),
              message("--link: '{}' is not a number (GB/s) from 0.0001 to 1000", text));
}

TEST(ListsOf, HaveTheirValuesBetweenCommas) {
  EXPECT_EQ(lists_of(sizes()).type, "SIZE,...");
  EXPECT_EQ(lists_of(counts()).read("--depths", "1,4"), (std::vector<std::uint32_t>{1, 4}));
  EXPECT_EQ(refusal([] { lists_of(counts()).read("--depths", "1,x"); }),
            "--depths: 'x' is not a whole number from 1 to 1000000");
}

TEST(OneOf, IsAValueByItsName) {
  static constexpr std::array<Named<int>, 2> kList{{{"quick", 1}, {"tight", 2}}};
  EXPECT_EQ(one_of(kList).type, "quick|tight");
  EXPECT_EQ(one_of(kList).read("--bound", "tight"), 2);
  EXPECT_EQ(refusal([] { one_of(kList).read("--bound", "tigth"); }),
            "unknown value of --bound 'tigth' (did you mean 'tight'?)");
}

}  // namespace
}  // namespace spillway::cli
