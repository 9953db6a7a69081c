#include "spillway/preload/torch_version.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temporary_directory.h"

namespace spillway::preload {
namespace {

using namespace std::string_literals;

std::string found_in(const std::string& data) {
  return find_torch_version(data.data(), data.size()).text;
}

TEST(ParseTorchVersion, TakesReleasesAndDevelopmentVersions) {
  TorchVersion version;
  EXPECT_TRUE(parse_torch_version("2.11.0", 6, version));
  EXPECT_EQ(version.major, 2u);
  EXPECT_EQ(version.minor, 11u);
  EXPECT_TRUE(parse_torch_version("2.14.0a0", 8, version));
  EXPECT_STREQ(version.text, "2.14.0a0");
}

TEST(ParseTorchVersion, RefusesOtherTexts) {
  TorchVersion version;
  for (const std::string text : {"", "2.11", "2.11.", ".2.11.0", "127.0.0.1", "v2.11.0", "pytorch",
                                 "1234.5.6", "2.11.0-and-a-very-long-suffix"})
    EXPECT_FALSE(parse_torch_version(text.data(), text.size(), version)) << text;
  EXPECT_FALSE(version.is_known());
}

TEST(FindTorchVersion, ReadsTheConstantBehindTheLandmark) {
  EXPECT_EQ(found_in("1.5.0\0x\0GraphEncoder\0pytorch\0"
                     "2.11.0\0Custom"s.substr(6)),
            "2.11.0");
}

TEST(FindTorchVersion, ReadsTheConstantOfTheBuildReport) {
  EXPECT_EQ(found_in("\0TORCH_VERSION\0002.13.0\0CXX_COMPILER\0GraphEncoder\0001.5.0\0"s),
            "2.13.0");
}

TEST(FindTorchVersion, ReadsTheConstantBeforeTheLandmark) {
  EXPECT_EQ(found_in("ab\0002.13.1\0GraphEncoder\0x\0"s), "2.13.1");
}

TEST(FindTorchVersion, IgnoresVersionsOfOtherLibrariesFarAway) {
  EXPECT_EQ(found_in("1.5.0\0"s + std::string(5000, 'x') + "\0GraphEncoder\0"s +
                     std::string(5000, 'x') + "\0007.8.9\0"s),
            "");
}

TEST(FindTorchVersion, GoesOnBehindALandmarkWithoutAVersion) {
  EXPECT_EQ(found_in("GraphEncoder\0"s + std::string(5000, 'x') + "\0GraphEncoder\0002.11.0\0"s),
            "2.11.0");
}

TEST(FindTorchVersion, IgnoresLongerNames) {
  EXPECT_EQ(found_in("MyGraphEncoderX\0002.11.0\0"s), "");
}

TEST(FindTorchVersion, StaysInsideOfTheData) {
  EXPECT_EQ(found_in(""), "");
  EXPECT_EQ(found_in("GraphEncoder"), "");
  EXPECT_EQ(found_in("GraphEncoder\0002.11.0"s), "");  // Cut off: not the whole constant.
}

TEST(TorchVersionOfName, ReadsWhatPackagersWrite) {
  EXPECT_STREQ(torch_version_of_name("/usr/lib/libtorch_cpu.so.1.13").text, "1.13.0");
  EXPECT_STREQ(torch_version_of_name("/usr/lib/libtorch_cpu.so.2.6.0").text, "2.6.0");
  EXPECT_FALSE(torch_version_of_name("/usr/lib/libtorch_cpu.so").is_known());
  EXPECT_FALSE(torch_version_of_name("/usr/lib/libtorch_cpu.so.x").is_known());
}

class TorchVersionBeside : public testing::Test {
 protected:
  TorchVersionBeside() { std::filesystem::create_directory(root_ + "/lib"); }

  std::string found(const std::string& name, const std::string& text) {
    std::ofstream(root_ + "/" + name) << text;
    return torch_version_beside((root_ + "/lib/libtorch_cpu.so").c_str()).text;
  }

  const TemporaryDirectory directory_;
  const std::string& root_ = directory_.path();
};

TEST_F(TorchVersionBeside, IsReadFromAWheel) {
  EXPECT_EQ(found("version.py", "from typing import Optional\n__version__ = '2.12.1+cu130'\n"),
            "2.12.1");
}

TEST_F(TorchVersionBeside, IsReadFromAnArchive) {
  EXPECT_EQ(found("build-version", "2.12.0+cpu\n"), "2.12.0");
}

TEST_F(TorchVersionBeside, IsUnknownWithoutEither) {
  EXPECT_EQ(found("version.py", "nothing of use"), "");
  EXPECT_EQ(found("build-version", ""), "");
}

}  // namespace
}  // namespace spillway::preload
