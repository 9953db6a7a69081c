#include "output_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "spillway/base/error.h"
#include "support/temporary_directory.h"

namespace spillway::cli {
namespace {

using ::testing::HasSubstr;

class OutputFiles : public ::testing::Test {
 protected:
  OutputFiles() { std::ofstream(in_) << "input"; }

  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }

  static std::string refusal(const std::vector<NamedFile>& inputs,
                             const std::vector<NamedFile>& outputs,
                             MissingFolder folders = MissingFolder::kRefused) {
    try {
      check_outputs(inputs, outputs, folders);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }

  std::string refusal(const std::string& output) const {
    return refusal({{"PROFILE", in_}}, {{"--out", output}});
  }

  TemporaryDirectory folder_;
  const std::string in_ = at("in.json");
};

TEST_F(OutputFiles, ReplaceNoInput) {
  EXPECT_EQ(refusal(in_), message("--out {} is the same file as PROFILE {} (name another file "
                                  "behind --out)",
                                  in_, in_));
  EXPECT_EQ(refusal(at("out.json")), "accepted");
  EXPECT_EQ(refusal(""), "accepted");  // Not given.
}

TEST_F(OutputFiles, ReplaceNoInputByAnotherName) {
  std::filesystem::create_symlink(in_, at("link"));
  std::filesystem::create_hard_link(in_, at("hard"));
  std::filesystem::create_directory(at("below"));
  for (const char* name : {"link", "hard", "below/../in.json", "./in.json"})
    EXPECT_THAT(refusal(at(name)), HasSubstr("is the same file as PROFILE")) << name;
}

TEST_F(OutputFiles, AreDifferentFilesBeforeTheyExist) {
  std::filesystem::create_directory(at("below"));
  EXPECT_THAT(refusal({}, {{"--stats", at("s")}, {"--trace", at("below/../s")}}),
              HasSubstr("is the same file as --stats"));
  EXPECT_EQ(refusal({}, {{"--stats", at("s")}, {"--trace", at("t")}}), "accepted");
}

TEST_F(OutputFiles, AreNoFoldersAndNoDevices) {
  EXPECT_EQ(refusal(folder_.path()),
            message("cannot write --out {}: it is a folder (name a file in it)", folder_.path()));
  EXPECT_THAT(refusal(at("new/")), HasSubstr("it is a folder"));
  EXPECT_THAT(refusal("/dev/null"), HasSubstr("/dev/null: it is no regular file"));
}

TEST_F(OutputFiles, HaveAFolderThatCanBeWritten) {
  EXPECT_THAT(refusal(at("none/x.json")), HasSubstr("none: does not exist (make it, or name"));
  EXPECT_THAT(refusal(in_ + "/x.json"), HasSubstr("is no folder"));
}

TEST_F(OutputFiles, HaveTheirFolderMadeWhereTheCommandDoes) {
  EXPECT_EQ(refusal({}, {{"--rates", at("a/b/x.json")}}, MissingFolder::kMade), "accepted");
  EXPECT_THAT(refusal({}, {{"--rates", in_ + "/b/x.json"}}, MissingFolder::kMade),
              HasSubstr("is no folder"));
}

}  // namespace
}  // namespace spillway::cli
