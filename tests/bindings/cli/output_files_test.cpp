#include "output_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/golden_part.h"
#include "support/temporary_directory.h"

namespace spillway::cli {
namespace {

class OutputFiles : public ::testing::Test {
 protected:
  OutputFiles() { std::ofstream(in_) << "input"; }

  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }

  static std::string refusal(const std::vector<NamedFile>& inputs,
                             const std::vector<NamedFile>& outputs,
                             MissingFolder folders = MissingFolder::kRefused) {
    return error_text<ConfigError>([&] { check_outputs(inputs, outputs, folders); });
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
  GoldenPart golden;
  for (const char* name : {"link", "hard", "below/../in.json", "./in.json"})
    golden.add(refusal(at(name)));
}

TEST_F(OutputFiles, AreDifferentFilesBeforeTheyExist) {
  std::filesystem::create_directory(at("below"));
  GoldenPart golden;
  golden.add(refusal({}, {{"--stats", at("s")}, {"--trace", at("below/../s")}}));
  EXPECT_EQ(refusal({}, {{"--stats", at("s")}, {"--trace", at("t")}}), "accepted");
}

TEST_F(OutputFiles, AreNoFoldersAndNoDevices) {
  GoldenPart golden;
  for (const std::string& output : {folder_.path(), at("new/"), std::string("/dev/null")})
    golden.add(refusal(output));
}

TEST_F(OutputFiles, HaveAFolderThatCanBeWritten) {
  GoldenPart golden;
  golden.add(refusal(at("none/x.json")));
  golden.add(refusal(in_ + "/x.json"));
  golden.add(refusal("/proc/x.json"));  // Its own user may write there, by its permissions.
}

TEST_F(OutputFiles, HaveAFolderWithRoom) {
  const auto end_without_room = [&](auto handler) {
    std::signal(SIGXFSZ, handler);
    rlimit usual{};
    ::getrlimit(RLIMIT_FSIZE, &usual);
    const rlimit none{0, usual.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
    const std::string refused = refusal(at("x.json"));
    ::setrlimit(RLIMIT_FSIZE, &usual);
    std::fputs(refused.c_str(), stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(end_without_room(SIG_IGN), testing::ExitedWithCode(0),
              "no bytes can be written in folder .*: File too large");
  // By default that signal ends the process, in the middle of the trial.
  EXPECT_EXIT(end_without_room(SIG_DFL), testing::KilledBySignal(SIGXFSZ), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(OutputFiles, HaveTheirFolderMadeWhereTheCommandDoes) {
  EXPECT_EQ(refusal({}, {{"--rates", at("a/b/x.json")}}, MissingFolder::kMade), "accepted");
  GoldenPart golden;
  golden.add(refusal({}, {{"--rates", in_ + "/b/x.json"}}, MissingFolder::kMade));
}

}  // namespace
}  // namespace spillway::cli
