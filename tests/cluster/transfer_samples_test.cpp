#include "spillway/planner/cluster/transfer_samples.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "spillway/base/error.h"
#include "support/damaged_text.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::cluster {
namespace {

std::string fault_of(const std::string& text) {
  return error_text<ConfigError>([&] { parse_samples(text, "nic.csv"); });
}

TEST(ParseSamples, ReadsRows) {
  const auto samples =
      parse_samples("bytes,seconds\n# two nodes\n1024, 15e-6\r\n\n1e6,94e-6", "nic.csv");
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_DOUBLE_EQ(samples[0].bytes, 1024.0);
  EXPECT_DOUBLE_EQ(samples[0].seconds, 15e-6);
  EXPECT_DOUBLE_EQ(samples[1].bytes, 1e6);
  EXPECT_TRUE(parse_samples("", "nic.csv").empty());
}

TEST(ParseSamples, NamesTheRowThatIsNone) {
  GoldenPart golden;
  golden.add(fault_of("1024,1e-5\n1024\n"));
  for (const char* row :
       {"1024,0", "1024,-1", "-1,1", "1024,1e300", "1024,nan", "1,2,3", "1,", ","})
    golden.add(fault_of(row));
  golden.add(fault_of("1,1\nbytes,seconds\n"));
}

TEST(ParseSamples, ReadsOrRefusesWhateverIsDamaged) {
  const std::string good = "bytes,seconds\n1024,0.00001\n65536,0.00002\n1048576,0.0001\n";
  std::uint32_t read = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    try {
      const LinkCosts link = fitted_link(parse_samples(DamagedText(seed)(good), "nic.csv"));
      EXPECT_GT(link.rate.bytes_per_second(), 0.0) << seed;
      EXPECT_GE(link.latency_seconds, 0.0) << seed;
      ++read;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << seed;
    }
  }
  EXPECT_GT(read, 0U);
}

TEST(FittedLink, FindsWhatMadeTheSamples) {
  std::mt19937_64 random(2);
  std::vector<TransferSample> samples;
  for (double bytes = 1e3; bytes < 1e9; bytes *= 4) {
    const double noise = 1.0 + 0.02 * (static_cast<double>(random() % 1000) / 500.0 - 1.0);
    samples.push_back({bytes, (14e-6 + bytes / 12.5e9) * noise});
  }
  const LinkCosts link = fitted_link(samples);
  EXPECT_NEAR(link.latency_seconds, 14e-6, 0.5e-6);
  EXPECT_NEAR(link.rate.bytes_per_second(), 12.5e9, 0.3e9);
}

TEST(FittedLink, RefusesSamplesThatSayNothing) {
  const auto fit = [](std::vector<TransferSample> samples) { return fitted_link(samples); };
  EXPECT_THROW(fit({}), ConfigError);
  EXPECT_THROW(fit({{100.0, 1.0}, {100.0, 2.0}}), ConfigError);
  EXPECT_THROW(fit({{100.0, 2.0}, {100000.0, 1.0}}), ConfigError);
  EXPECT_THROW(fit({{100.0, 0.0}, {200.0, 1.0}}), ConfigError);
  EXPECT_DOUBLE_EQ(fit({{100.0, 1.0}, {300.0, 5.0}}).latency_seconds, 0.0);
}

}  // namespace
}  // namespace spillway::cluster
