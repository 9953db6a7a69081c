#include "spillway/base/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "spillway/base/error.h"
#include "support/golden_part.h"

namespace spillway {
namespace {

std::string refusal_of(const char* text) {
  try {
    return "taken as " + to_string(parse_bytes(text));
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ParseBytes, KnowsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("17B"), 17_B);
  EXPECT_EQ(parse_bytes("512MiB"), 512_MiB);
  EXPECT_EQ(parse_bytes("4GiB"), 4_GiB);
  EXPECT_EQ(parse_bytes("2TiB"), 2_TiB);
  EXPECT_EQ(parse_bytes("3KB"), Bytes(3000));
  EXPECT_EQ(parse_bytes("4GB"), Bytes(4000000000));
  EXPECT_EQ(parse_bytes("1TB"), Bytes(1000000000000));
}

TEST(ParseBytes, TakesALetterAloneForABinaryUnit) {
  EXPECT_EQ(parse_bytes("4G"), 4_GiB);
  EXPECT_EQ(parse_bytes("8K"), 8_KiB);
  EXPECT_EQ(parse_bytes("1M"), 1_MiB);
  EXPECT_EQ(parse_bytes("1T"), 1_TiB);
}

TEST(ParseBytes, TakesFractionsBlanksAndSmallLetters) {
  EXPECT_EQ(parse_bytes("1.5GiB"), 1536_MiB);
  EXPECT_EQ(parse_bytes(" 4 gib "), 4_GiB);
  EXPECT_EQ(parse_bytes("0.5 MB"), Bytes(500000));
  EXPECT_EQ(parse_bytes("0GiB"), Bytes());
}

TEST(ParseBytes, RefusesNumbersWithoutUnitAndShowsHowToWriteThem) {
  GoldenPart golden;
  golden.add(refusal_of("4"));
  golden.add(refusal_of("0"));
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  GoldenPart golden;
  for (const char* text : {"", "GiB", "four GiB", "-4GiB", "inf", "infGiB", "nan GiB", "+4GiB"})
    golden.add(refusal_of(text));
}

TEST(ParseBytes, RefusesUnknownUnitsAndNamesTheKnownOnes) {
  GoldenPart golden;
  golden.add(refusal_of("4 Gb/s"));
  golden.add(refusal_of("4PiB"));
  golden.add(refusal_of("4GiB 2"));
}

TEST(ParseBytes, RefusesWhatNoNumberOfBytesHolds) {
  GoldenPart golden;
  golden.add(refusal_of("1e30GiB"));
  golden.add(refusal_of("9000000TiB"));
  EXPECT_EQ(parse_bytes("8000000TiB"), 8000000_TiB);
}

TEST(BytesText, HasThreeSignificantDigitsInTheFittingUnit) {
  EXPECT_EQ(to_string(Bytes()), "0 B");
  EXPECT_EQ(to_string(1023_B), "1023 B");
  EXPECT_EQ(to_string(1_KiB), "1.00 KiB");
  EXPECT_EQ(to_string(1536_B), "1.50 KiB");
  EXPECT_EQ(to_string(12_MiB + 512_KiB), "12.5 MiB");
  EXPECT_EQ(to_string(703_MiB), "703 MiB");
  EXPECT_EQ(to_string(4_GiB), "4.00 GiB");
  EXPECT_EQ(to_string(5000_TiB), "5000 TiB");
}

}  // namespace
}  // namespace spillway
