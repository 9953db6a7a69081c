#include "spillway/pipeline/agreement/process_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "support/temporary_directory.h"

namespace spillway::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::StartsWith;

/// A folder like that of a process in /proc.
class ProcessFacts : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(path("cwd"));
    write("trainer", "a program");
    std::filesystem::create_symlink(path("trainer"), path("exe"));
    write("cmdline", std::string("./trainer\0", 10));
    write("environ", "");
  }

  std::filesystem::path path(const std::string& name) const {
    return std::filesystem::path(directory_.path()) / name;
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  JobFacts facts() const { return facts_of_process(directory_.path()); }

 private:
  TemporaryDirectory directory_;
};

TEST_F(ProcessFacts, HaveTheProgramByItsContents) {
  const JobFacts before = facts();
  EXPECT_THAT(before, ElementsAre(Pair("the program", path("trainer").string()),
                                  Pair("the hash of the program", StartsWith("XXH3 ")),
                                  Pair("the list of arguments", "")));
  write("trainer", "b program");
  EXPECT_NE(facts()[1].second, before[1].second);
}

TEST_F(ProcessFacts, HaveTheArgumentsButNotHowTheProgramWasCalled) {
  const std::string words("../else/trainer\0--name\0two words\0", 33);
  write("cmdline", words);
  EXPECT_EQ(facts()[2].second, "--name 'two words'");
}

TEST_F(ProcessFacts, HavePythonFilesByTheirContents) {
  write("cwd/train.py", "import torch");
  const std::string words("python3\0train.py\0other.py\0", 26);
  write("cmdline", words);
  const JobFacts before = facts();
  ASSERT_EQ(before.size(), 4u);
  EXPECT_EQ(before[3].first, "the hash of train.py");
  write("cwd/train.py", "import torch, time");
  EXPECT_NE(facts()[3].second, before[3].second);
}

TEST_F(ProcessFacts, HaveTheVariablesThatChangeNumbersInOneOrder) {
  const std::string variables(
      "OMP_NUM_THREADS=2\0HOME=/root\0MKL_CBWR=AVX2\0OMP_PROC_BIND=true\0ATEN_CPU_CAPABILITY=\0",
      84);
  write("environ", variables);
  JobFacts all = facts();
  all.erase(all.begin(), all.begin() + 3);
  EXPECT_THAT(all, ElementsAre(Pair("ATEN_CPU_CAPABILITY", ""), Pair("MKL_CBWR", "AVX2"),
                               Pair("OMP_NUM_THREADS", "2")));
}

TEST_F(ProcessFacts, HaveTheProcessorByWhatLibrariesChooseTheirKernels) {
  write("cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        "model name\t: a name\ncpu MHz\t\t: 2000.1\nflags\t\t: fpu sse2 ibrs avx2 amx_tile\n"
        "power management:\n\nprocessor\t: 1\nvendor_id\t: other\n");
  EXPECT_EQ(processor_of(path("cpuinfo")),
            "vendor_id GenuineIntel, cpu family 6, model 143 amx_tile avx2 sse2");
  EXPECT_EQ(processor_of(path("none")), "");
}

TEST_F(ProcessFacts, AreRefusedWhereTheProgramCannotBeRead) {
  std::filesystem::remove(path("trainer"));
  EXPECT_THROW(facts(), IoError);
}

TEST(FactsOfThisProcess, NameIt) {
  const JobFacts facts = facts_of_process();
  EXPECT_EQ(facts[0].second, std::filesystem::read_symlink("/proc/self/exe").string());
}

}  // namespace
}  // namespace spillway::pipeline
