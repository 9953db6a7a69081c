#include "program_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

namespace spillway::cli {
namespace {

namespace fs = std::filesystem;

class ProgramFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text, mode_t mode = 0755) {
    const std::string path = folder_ + "/" + name;
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }

  const TemporaryDirectory directory_;
  const std::string& folder_ = directory_.path();
};

TEST_F(ProgramFiles, AreFoundInTheSearchPathInOrder) {
  write("a/tool", "#!/bin/sh\n", 0644);
  const std::string second = write("b/tool", "#!/bin/sh\n");
  const auto found = find_program("tool", folder_ + "/none:" + folder_ + "/a:" + folder_ + "/b");
  EXPECT_EQ(found.path, second);
  EXPECT_EQ(found.hindrance, "");
}

TEST_F(ProgramFiles, AreNotFoundElsewhere) {
  EXPECT_EQ(find_program("tool", folder_).path, "");
  EXPECT_EQ(find_program(folder_ + "/tool", "").path, "");
  EXPECT_EQ(find_program("", folder_).path, "");
}

TEST_F(ProgramFiles, SayWhyTheyCannotBeExecuted) {
  const std::string plain = write("plain", "text", 0644);
  EXPECT_NE(find_program(plain, "").hindrance.find("chmod +x"), std::string::npos);
  EXPECT_EQ(find_program("plain", folder_).path, folder_ + "/plain");
  EXPECT_EQ(find_program(folder_ + "/", "").hindrance, "it is a folder (name a program in it)");
}

TEST_F(ProgramFiles, AreToldApartByTheirBytes) {
  EXPECT_EQ(inspect_program(write("script", "#!/bin/sh\n")).kind, ProgramKind::kScript);
  EXPECT_EQ(inspect_program(write("empty", "")).kind, ProgramKind::kScript);
  const ProgramFile self = inspect_program("/proc/self/exe");
  EXPECT_EQ(self.kind, ProgramKind::kDynamic);
  EXPECT_FALSE(self.loader.empty());
  EXPECT_FALSE(self.has_torch_inside);
  EXPECT_EQ(self.start, preload::SecureStart::kNo);
}

TEST_F(ProgramFiles, OfAnotherWordSizeAreForeign) {
  std::string header("\x7f"
                     "ELF\x01\x01\x01",
                     7);
  header.resize(64, '\0');
  EXPECT_EQ(inspect_program(write("small", header)).kind, ProgramKind::kForeign);
}

TEST_F(ProgramFiles, ThatAreCutOffAreSurvived) {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::string start(4096, '\0');
  self.read(start.data(), static_cast<std::streamsize>(start.size()));
  for (const std::size_t size : {4u, 20u, 64u, 100u, 300u, 4096u})
    EXPECT_NO_FATAL_FAILURE(inspect_program(write("cut", start.substr(0, size)))) << size;
}

TEST_F(ProgramFiles, WithoutLibTorchListNone) {
  const ProgramFile self = inspect_program("/proc/self/exe");
  EXPECT_EQ(linked_torch(self, fs::read_symlink("/proc/self/exe")), std::nullopt);
}

TEST_F(ProgramFiles, ThatAreNoLibraryHaveNoTorchVersion) {
  EXPECT_FALSE(torch_version_of_file(write("libtorch_cpu.so", "text")).is_known());
  EXPECT_FALSE(torch_version_of_file("/no/such/libtorch_cpu.so").is_known());
}

}  // namespace
}  // namespace spillway::cli
