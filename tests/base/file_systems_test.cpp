#include "spillway/base/file_systems.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(FindFileSystem, KnowsKindsByNameAndByNumber) {
  ASSERT_NE(find_file_system("tmpfs"), nullptr);
  EXPECT_EQ(find_file_system("tmpfs"), find_file_system(0x01021994u));
  EXPECT_EQ(find_file_system("tmpfs")->medium, Medium::kMemory);
  EXPECT_EQ(find_file_system("xfs")->medium, Medium::kDisk);
  EXPECT_EQ(find_file_system("nfs4")->medium, Medium::kNetwork);
}

TEST(FindFileSystem, TakesTheUsualNameOfASharedNumber) {
  EXPECT_EQ(find_file_system(0xEF53u)->name, "ext4");
  EXPECT_EQ(find_file_system("ext2")->magic, 0xEF53u);
  // Whatever lies behind FUSE: only the name can tell that it is a network.
  EXPECT_EQ(find_file_system(0x65735546u)->medium, Medium::kDisk);
  EXPECT_EQ(find_file_system("fuse.sshfs")->medium, Medium::kNetwork);
}

TEST(FindFileSystem, AdmitsThatItKnowsNothing) {
  EXPECT_EQ(find_file_system("myfs"), nullptr);
  EXPECT_EQ(find_file_system(""), nullptr);
  EXPECT_EQ(find_file_system(0u), nullptr);
}

}  // namespace
}  // namespace spillway
