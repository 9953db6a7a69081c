#include "planning/planning_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "spillway/base/error.h"
#include "spillway/topology/directory.h"
#include "spillway/topology/disk_rates.h"
#include "support/chain_profile.h"
#include "support/error_text.h"
#include "support/golden_part.h"
#include "support/temporary_directory.h"

namespace spillway::cli {
namespace {

/// What this machine has measured is no part of the tests of this program.
constexpr const char* kNothing = "/none";
[[maybe_unused]] const int kIsSet = ::setenv("XDG_CONFIG_HOME", kNothing, 1);

profile::StepProfile without_rates() { return chain_profile(); }

profile::StepProfile with_rates() {
  profile::StepProfile profile = chain_profile();
  profile.rates = profile::TransferRates{.write = TransferRate(3e9),
                                         .read = TransferRate(4e9),
                                         .interference_seconds_per_byte = 7e-11};
  return profile;
}

std::string refusal(const RateOptions& options) {
  return error_text([&] { choose_rates(options, with_rates()); });
}

/// A file of two disks, and one of a third directory on the first of them.
class RatesFile : public ::testing::Test {
 protected:
  RatesFile() {
    add("/fast", "nvme0", 2e9, 3e9, 2.5e9);
    add("/faster", "nvme1", 4e9, 5e9, 9e9);
    add("/same", "nvme0", 2e9, 3e9, 2.5e9);
    rates_.save(path_);
  }

  void add(const std::string& directory, const std::string& device, double write, double read,
           double both) {
    topology::DiskRate rate;
    rate.directory = directory;
    rate.device = device;
    rate.write = TransferRate(write);
    rate.read = TransferRate(read);
    rate.both = TransferRate(both);
    rates_.record(rate);
  }

  TemporaryDirectory folder_;
  const std::string path_ = folder_.path() + "/disks.json";
  topology::DiskRates rates_;
};

RateOptions two_tiers() {
  return {.link_out = TransferRate(25e9),
          .link_in = TransferRate(20e9),
          .host_memory = 64_GiB,
          .disk_out = TransferRate(3e9),
          .disk_in = TransferRate(6e9)};
}

TEST(ChooseRates, PutsDisksBehindHostMemory) {
  const ChosenRates chosen = choose_rates(two_tiers(), with_rates());
  EXPECT_EQ(chosen.rates.write.bytes_per_second(), 25e9);
  ASSERT_TRUE(chosen.far.has_value());
  EXPECT_EQ(chosen.far->host_memory, Bytes(std::uint64_t{64} << 30));
  EXPECT_EQ(chosen.far->rates.write.bytes_per_second(), 3e9);
  EXPECT_EQ(chosen.far->rates.read.bytes_per_second(), 6e9);
  EXPECT_EQ(chosen.far->rates.duplex_share, 0.5);
  EXPECT_EQ(chosen.far->rates.interference_seconds_per_byte, 0.0);
  EXPECT_EQ(rates_text(chosen),
            "25.00 GB/s out, 20.00 GB/s in, both at once; 64.0 GiB of host memory, then 3.00 GB/s "
            "out, 6.00 GB/s in, 50 % of that while both run");
  EXPECT_EQ(far_tier(chosen, Bytes(1 << 20))->near_pages, 65536U);
  EXPECT_FALSE(far_tier(choose_rates({}, with_rates()), Bytes(1 << 20)).has_value());
}

TEST(ChooseRates, TakesTheTiersOfAProfileThatHasThem) {
  profile::StepProfile profile = with_rates();
  profile.disks = {{.write = TransferRate(3e9), .read = TransferRate(6e9)}, 12};
  const ChosenRates recorded = choose_rates({}, profile);
  EXPECT_EQ(recorded.rates, *profile.rates);
  const auto far = far_tier(recorded, profile.page_size);
  ASSERT_TRUE(far.has_value());
  EXPECT_EQ(far->rates, profile.disks->rates);
  EXPECT_EQ(far->near_pages, 12U);
  const auto smaller = far_tier(choose_rates({.host_memory = 8_MiB}, profile), profile.page_size);
  ASSERT_TRUE(smaller.has_value());
  EXPECT_EQ(smaller->near_pages, 8_MiB / profile.page_size);
  EXPECT_FALSE(
      choose_rates({.link_out = TransferRate(12e9), .link_in = TransferRate(25e9)}, profile)
          .far.has_value())
      << "what is named takes the place of all that was recorded";
}

TEST(ChooseRates, TakesALinkForFullDuplexWithoutSideEffects) {
  const ChosenRates chosen =
      choose_rates({.link_out = TransferRate(12e9), .link_in = TransferRate(25.5e9)}, with_rates());
  EXPECT_EQ(chosen.rates.write.bytes_per_second(), 12e9);
  EXPECT_EQ(chosen.rates.read.bytes_per_second(), 25.5e9);
  EXPECT_EQ(chosen.rates.duplex_share, 1.0);
  EXPECT_EQ(chosen.rates.interference_seconds_per_byte, 0.0);
  EXPECT_EQ(chosen.source, "given");
  const RateOptions shared{
      .link_out = TransferRate(12e9), .link_in = TransferRate(12e9), .duplex = 0.6};
  EXPECT_EQ(choose_rates(shared, with_rates()).rates.duplex_share, 0.6);
}

TEST(ChooseRates, FallsBackToTheProfileAndThenToGuessesAndSaysSo) {
  const ChosenRates recorded = choose_rates({}, with_rates());
  EXPECT_EQ(recorded.rates.write.bytes_per_second(), 3e9);
  EXPECT_EQ(recorded.source, "of the profile, from where it was recorded");
  const ChosenRates guessed = choose_rates({}, without_rates());
  EXPECT_EQ(guessed.rates.write.bytes_per_second(),
            profile::TransferRates{}.write.bytes_per_second());
  EXPECT_EQ(guessed.source, "guesses for a fair NVMe disk; see --rates and --link-out");
}

TEST(ChooseRates, CallsGuessesWhatNothingWasMeasuredOf) {
  const auto source_of = [](double write, double read) {
    profile::StepProfile profile = chain_profile();
    profile.rates = profile::TransferRates{};
    profile.rates->write = profile.rates->write * write;
    profile.rates->read = profile.rates->read * read;
    return choose_rates({}, profile).source;
  };
  GoldenPart golden;
  golden.add("both but for rounding", source_of(1.0, 1.0 + 1e-12));
  golden.add("neither", source_of(1.1, 0.9));
  golden.add("in", source_of(1.1, 1.0));
  golden.add("out", source_of(1.0, 1.1));
}

TEST_F(RatesFile, GivesTheRatesOfOneDirectory) {
  const ChosenRates chosen = choose_rates({.rates = path_, .nvme = {"/fast"}}, with_rates());
  EXPECT_EQ(chosen.rates.write.bytes_per_second(), 2e9);
  EXPECT_EQ(chosen.rates.read.bytes_per_second(), 3e9);
  EXPECT_EQ(chosen.rates.duplex_share, 0.5);
  // What a file of rates does not tell stays as it was recorded.
  EXPECT_EQ(chosen.rates.interference_seconds_per_byte, 7e-11);
  EXPECT_EQ(chosen.source,
            path_ + ": /fast (not measured there: fixed costs, slowdown of operators)");
}

TEST_F(RatesFile, AddsDirectoriesOfDifferentDisks) {
  EXPECT_EQ(choose_rates({.rates = path_, .nvme = {"/fast", "/faster"}}, with_rates())
                .rates.write.bytes_per_second(),
            6e9);
  EXPECT_EQ(choose_rates({.rates = path_, .nvme = {"/fast", "/same"}}, with_rates())
                .rates.write.bytes_per_second(),
            2e9);
}

TEST_F(RatesFile, IsOfTheDisksBehindALink) {
  const RateOptions options{.link_out = TransferRate(7e9),
                            .link_in = TransferRate(8e9),
                            .rates = path_,
                            .nvme = {"/fast"},
                            .host_memory = 1_GiB};
  const ChosenRates both = choose_rates(options, with_rates());
  EXPECT_EQ(both.rates.write.bytes_per_second(), 7e9);
  EXPECT_EQ(both.far->rates.write.bytes_per_second(), 2e9);
  EXPECT_EQ(both.far->rates.interference_seconds_per_byte, 0.0);
  EXPECT_EQ(both.far->source,
            path_ + ": /fast (not measured there: fixed costs, slowdown of operators)");
}

TEST(DirectoriesIn, AreReadAsARunReadsThem) {
  EXPECT_THAT(directories_in("/fast,/faster"), ::testing::ElementsAre("/fast", "/faster"));
  for (const char* list : {"/fast,", ",/fast", "/fast,,/faster", ",", "/fast,/fast"})
    EXPECT_THROW(directories_in(list), ConfigError) << list;
}

TEST_F(RatesFile, ServesOtherDirectoriesOnlyOfThisMachineAndSaysWhose) {
  const TemporaryDirectory folder;
  const topology::Directory here = topology::inspect_directory(folder.path());
  topology::DiskRates rates;
  topology::DiskRate measured;
  measured.directory = "/measured";
  measured.mount_point = here.mount_point.value_or("");
  measured.read = TransferRate(3e9);
  measured.write = TransferRate(2e9);
  rates.record(measured);
  rates.save(path_);
  GoldenPart golden;
  golden.add(refusal({.rates = path_, .nvme = {folder.path()}}));
  ASSERT_EQ(::setenv("XDG_CONFIG_HOME", folder.path().c_str(), 1), 0);
  rates.save(topology::default_disk_rates_path());
  golden.add(choose_rates({.nvme = {folder.path()}}, with_rates()).source);
  golden.add(choose_rates({}, without_rates()).source);
  golden.add(refusal({.nvme = {folder.path() + "/none"}}));
  ASSERT_EQ(::setenv("XDG_CONFIG_HOME", kNothing, 1), 0);
}

TEST_F(RatesFile, NeedsNoNameForItsOnlyDirectory) {
  topology::DiskRates only;
  only.record(*rates_.find("/fast", ""));
  only.save(path_);
  EXPECT_EQ(choose_rates({.rates = path_}, with_rates()).rates.read.bytes_per_second(), 3e9);
}

TEST_F(RatesFile, RefusesRatesThatWereNotMeasured) {
  add("/half", "sda", 2e9, 0.0, 0.0);
  rates_.save(path_);
  GoldenPart golden;
  golden.add(refusal({.rates = path_, .nvme = {"/half"}}));
}

TEST_F(RatesFile, HasTheLinkOfAGpuToo) {
  RateOptions options{.rates = path_, .nvme = {"/fast"}, .host_memory = 1_GiB};
  GoldenPart golden;
  golden.add(refusal(options));
  topology::LinkRate link;
  link.name = "Card";
  link.out = TransferRate(5e10);
  link.in = TransferRate(4e10);
  link.both = TransferRate(4.5e10);
  link.out_fixed_seconds = 1e-5;
  link.interference_seconds_per_byte = 2e-12;
  rates_.record(link);
  rates_.save(path_);
  const ChosenRates chosen = choose_rates(options, with_rates());
  EXPECT_EQ(chosen.source, path_ + ": Card");
  EXPECT_EQ(chosen.rates.write.bytes_per_second(), 5e10);
  EXPECT_EQ(chosen.rates.read.bytes_per_second(), 4e10);
  EXPECT_EQ(chosen.rates.duplex_share, 0.5);
  EXPECT_EQ(chosen.rates.write_fixed_seconds, 1e-5);
  EXPECT_EQ(chosen.rates.interference_seconds_per_byte, 2e-12);
  EXPECT_EQ(chosen.far->rates.write.bytes_per_second(), 2e9);
  options.gpu = "Another";
  link.name = "Another";
  rates_.record(link);
  rates_.save(path_);
  EXPECT_EQ(choose_rates(options, with_rates()).source, path_ + ": Another");
}

TEST_F(RatesFile, IsAboutTheTiersOfAProfileThatHasThem) {
  profile::StepProfile profile = with_rates();
  profile.disks = {{.write = TransferRate(1e9), .read = TransferRate(1e9)}, 12};
  const RateOptions options{.rates = path_, .nvme = {"/fast"}};
  const ChosenRates of_disks = choose_rates(options, profile);
  EXPECT_EQ(of_disks.rates, *profile.rates);  // The file has no link.
  ASSERT_TRUE(of_disks.far.has_value());
  EXPECT_EQ(of_disks.far->host_memory, 12 * profile.page_size);
  EXPECT_EQ(of_disks.far->rates.write.bytes_per_second(), 2e9);
  topology::LinkRate link;
  link.name = "Card";
  link.out = TransferRate(5e10);
  link.in = TransferRate(4e10);
  link.both = TransferRate(4.5e10);
  rates_.record(link);
  rates_.save(path_);
  const ChosenRates of_both = choose_rates(options, profile);
  EXPECT_EQ(of_both.rates.write.bytes_per_second(), 5e10);
  EXPECT_EQ(of_both.far->rates.write.bytes_per_second(), 2e9);
  topology::DiskRates link_alone;
  link_alone.record(link);
  link_alone.save(path_);
  const ChosenRates of_link = choose_rates({.rates = path_, .host_memory = 8_MiB}, profile);
  EXPECT_EQ(of_link.rates.write.bytes_per_second(), 5e10);
  EXPECT_EQ(of_link.far->host_memory, 8_MiB);
  EXPECT_EQ(of_link.far->rates.write.bytes_per_second(), 1e9);
}

TEST_F(RatesFile, GivesRanksTheDisksThatAreNamedAndNotTheLinkOfTheProfile) {
  profile::StepProfile profile = with_rates();
  profile.disks = {{.write = TransferRate(1e9), .read = TransferRate(1e9)}, 12};
  const RateOptions options{.rates = path_, .nvme = {"/fast"}};
  const profile::TransferRates disks = measured_disks(options, profile);
  EXPECT_EQ(disks.write.bytes_per_second(), 1e9);  // Half of it, as was measured of both at once.
  EXPECT_EQ(disks.read.bytes_per_second(), 1.5e9);
  EXPECT_EQ(swap_rates(options, 2, profile).host.bytes_per_second(), 0.5e9);
  EXPECT_TRUE(swap_rates({}, 2, profile).host.is_none());
}

TEST(RatesText, TellsWhatIsLeftWhileBothDirectionsRun) {
  profile::TransferRates rates;
  EXPECT_EQ(rates_text({rates, ""}), "1.50 GB/s out, 2.00 GB/s in, 50 % of that while both run");
  rates.duplex_share = 1.0;
  EXPECT_EQ(rates_text({rates, ""}), "1.50 GB/s out, 2.00 GB/s in, both at once");
}

}  // namespace
}  // namespace spillway::cli
