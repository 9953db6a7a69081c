#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/profile/step_profile.h"

namespace spillway::profile {
namespace {

ProfileOrigin origin_of(const std::vector<std::string>& words) {
  ProfileOrigin origin;
  set_program(origin, words);
  return origin;
}

TEST(SetProgram, KeepsTheArguments) {
  const ProfileOrigin origin = origin_of({"/bin/unet", "--patch", "64x64x64", "a b", "it's", ""});
  EXPECT_EQ(origin.program, "/bin/unet");
  EXPECT_EQ(origin.command, R"(/bin/unet --patch 64x64x64 'a b' 'it'\''s' '')");
}

TEST(SetProgram, NamesTheScriptOfPython) {
  EXPECT_EQ(origin_of({"/usr/bin/python3", "train.py", "--x"}).program, "train.py");
  EXPECT_EQ(origin_of({"python3.11", "-u", "-W", "ignore", "train.py"}).program, "train.py");
  EXPECT_EQ(origin_of({"python", "-m", "trainer.main", "x"}).program, "-m trainer.main");
  EXPECT_EQ(origin_of({"python3", "-c", "import torch"}).program, "python3");
  EXPECT_EQ(origin_of({"./pythonic", "train.py"}).program, "./pythonic");
  EXPECT_EQ(origin_of({"python3", "train.py", "--x"}).command, "python3 train.py --x");
}

TEST(SetProgram, CutsLongCommandsBetweenLetters) {
  for (std::size_t length = 380; length < 390; ++length) {
    std::string word(length, 'x');
    for (int i = 0; i < 20; ++i) word += "ä";
    const std::string command = origin_of({"p", word}).command;
    ASSERT_LE(command.size(), 400U + std::string("…").size());
    ASSERT_TRUE(command.ends_with("…"));
    const std::string cut = command.substr(0, command.size() - std::string("…").size());
    EXPECT_TRUE(cut.ends_with("ä") || cut.ends_with("x")) << length;
  }
}

TEST(SetProgram, StaysOneLineAndLeavesWhatIsUnknown) {
  EXPECT_EQ(origin_of({"p", "a\nb"}).command, "p 'a b'");
  EXPECT_EQ(origin_of({}).program, "");
}

}  // namespace
}  // namespace spillway::profile
