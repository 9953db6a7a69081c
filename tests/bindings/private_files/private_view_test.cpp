// The view of private_files.h without any function in between. What others see is changed here as
// the first rank would: beside the view.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "private_files.h"
#include "rank_notices.h"
#include "support/temporary_directory.h"

namespace spillway::preload {

// What is told of them is looked at by rank_effects_test.py.
void tell_of_copy(const char* /*name*/, off_t /*size*/) {}

namespace {

namespace fs = std::filesystem;

class PrivateFiles : public ::testing::Test {
 protected:
  PrivateFiles() {
    fs::create_directories(shared("folder/below"));
    write(shared("file"), "shared");
    write(shared("folder/entry"), "entry");
    fs::create_directory(own_);
    use_private_files(own_.c_str());
  }
  ~PrivateFiles() override { use_private_files(nullptr); }

  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return file ? std::string(std::istreambuf_iterator<char>(file), {}) : "nothing";
  }

  std::string shared(const std::string& name) const { return shared_ + "/" + name; }

  Place place(const std::string& name, Follow follow = Follow::kNo) const {
    Place found;
    EXPECT_EQ(find_place(AT_FDCWD, shared(name).c_str(), follow, found), 0) << name;
    return found;
  }
  Kind kind(const std::string& name) const { return place(name).kind; }

  /// As open(2) and a write.
  int fill(const std::string& name, int flags, const std::string& text) const {
    Place found = place(name);
    const int error = ready_to_open(found, flags);
    if (error == 0) std::ofstream(found.file, std::ios::app) << text;
    return error;
  }
  int rename(const std::string& from, const std::string& to, unsigned flags = 0) const {
    Place source = place(from);
    Place target = place(to);
    return rename_private(source, target, flags);
  }
  int remove(const std::string& name) const {
    Place found = place(name);
    return remove_private(found);
  }
  int make_folder(const std::string& name) const {
    Place found = place(name);
    return make_private_folder(found, 0700);
  }
  std::string seen(const std::string& name) const { return read(place(name, Follow::kYes).file); }

  mode_t fs_mode(const std::string& name) const {
    struct stat facts {};
    EXPECT_EQ(::stat(shared(name).c_str(), &facts), 0);
    return facts.st_mode;
  }

  /// Makes a file that is born after the rank has begun, by the clock of the file system.
  void make_younger(const std::string& name) const {
    struct statx made {};
    struct stat begun {};
    ASSERT_EQ(::lstat((own_ + "/owner").c_str(), &begun), 0);
    do {
      fs::remove(shared(name));
      write(shared(name), "of the first");
      ASSERT_EQ(::statx(AT_FDCWD, shared(name).c_str(), 0, STATX_BTIME, &made), 0);
      if ((made.stx_mask & STATX_BTIME) == 0) GTEST_SKIP() << "no times of birth in TMPDIR";
    } while (made.stx_btime.tv_sec == begun.st_mtim.tv_sec &&
             made.stx_btime.tv_nsec <= begun.st_mtim.tv_nsec);
  }

  /// From here on what is made is younger than the rank, once `make_younger` has made something.
  void begin_rank() const {
    ASSERT_EQ(::symlink("somebody", (own_ + "/owner").c_str()), 0);
    use_private_files(own_.c_str());
  }

 private:
  TemporaryDirectory room_;
  std::string shared_ = fs::canonical(room_.path()).string() + "/shared";
  std::string own_ = fs::canonical(room_.path()).string() + "/own";
};

TEST_F(PrivateFiles, ShowWhatExists) {
  EXPECT_EQ(kind("file"), Kind::kShared);
  EXPECT_EQ(kind("folder"), Kind::kShared);
  EXPECT_EQ(kind("absent"), Kind::kNothing);
  EXPECT_EQ(std::string(place("folder/../folder/./below/").name), shared("folder/below"));
}

TEST_F(PrivateFiles, CopyAFileThatIsChanged) {
  EXPECT_EQ(fill("file", O_WRONLY, " and own"), 0);
  EXPECT_EQ(seen("file"), "shared and own");
  EXPECT_EQ(read(shared("file")), "shared");
  EXPECT_EQ(kind("file"), Kind::kPrivate);
}

TEST_F(PrivateFiles, CopyNothingOfAFileThatIsWrittenAnew) {
  Place found = place("file");
  ASSERT_EQ(ready_to_open(found, O_WRONLY | O_TRUNC), 0);
  EXPECT_EQ(fs::file_size(found.file), 0U);
  EXPECT_EQ(read(shared("file")), "shared");
}

TEST_F(PrivateFiles, CopyNothingOfAFileThatIsRenamed) {
  ASSERT_EQ(rename("file", "moved"), 0);
  EXPECT_EQ(kind("file"), Kind::kNothing);
  EXPECT_EQ(kind("moved"), Kind::kMoved);
  EXPECT_EQ(std::string(place("moved").file), shared("file"));
  EXPECT_TRUE(S_ISREG(place("moved").facts.st_mode));
  ASSERT_EQ(rename("moved", "folder/moved"), 0);
  EXPECT_EQ(fill("folder/moved", O_RDWR, "!"), 0);
  EXPECT_EQ(seen("folder/moved"), "shared!");
  EXPECT_EQ(read(shared("file")), "shared");
}

TEST_F(PrivateFiles, MoveAFolderWithAllThatIsInIt) {
  ASSERT_EQ(fill("folder/own", O_CREAT | O_WRONLY, "own"), 0);
  ASSERT_EQ(rename("folder", "moved"), 0);
  EXPECT_EQ(kind("folder"), Kind::kNothing);
  EXPECT_EQ(seen("moved/own"), "own");
  EXPECT_EQ(seen("moved/entry"), "entry");
  EXPECT_EQ(kind("moved/below"), Kind::kPrivate);
  EXPECT_EQ(place("moved").facts.st_mode, fs_mode("folder"));
}

TEST_F(PrivateFiles, HideWhatOthersPutIntoAFolderOfItsOwn) {
  ASSERT_EQ(make_folder("made"), 0);
  fs::create_directory(shared("made"));
  write(shared("made/entry"), "of another");
  EXPECT_EQ(kind("made"), Kind::kPrivate);
  EXPECT_EQ(kind("made/entry"), Kind::kNothing);
}

TEST_F(PrivateFiles, ForgetWhatIsRemovedAlsoWhenOthersMakeItAgain) {
  EXPECT_EQ(remove("file"), 0);
  EXPECT_EQ(remove("file"), ENOENT);
  write(shared("file"), "again");
  EXPECT_EQ(kind("file"), Kind::kNothing);
  EXPECT_EQ(fill("file", O_CREAT | O_EXCL | O_WRONLY, "own"), 0);
  EXPECT_EQ(seen("file"), "own");
}

TEST_F(PrivateFiles, LetARankRemoveWhatTheFirstOneHasRemovedMeanwhile) {
  EXPECT_EQ(kind("file"), Kind::kShared);
  fs::remove(shared("file"));
  EXPECT_EQ(remove("file"), 0);
  EXPECT_EQ(remove("file"), ENOENT);
  EXPECT_EQ(remove("never seen"), ENOENT);
}

TEST_F(PrivateFiles, LetARankRenameWhatTheFirstOneHasRenamedMeanwhile) {
  EXPECT_EQ(kind("file"), Kind::kShared);
  fs::rename(shared("file"), shared("old"));
  EXPECT_EQ(rename("file", "old"), 0);
  EXPECT_EQ(seen("old"), "shared");
  EXPECT_EQ(rename("file", "old"), ENOENT);
}

TEST_F(PrivateFiles, LetARankMakeWhatTheFirstOneHasMadeMeanwhile) {
  EXPECT_EQ(fill("file", O_CREAT | O_EXCL | O_WRONLY, ""), EEXIST);
  begin_rank();
  EXPECT_EQ(fill("file", O_CREAT | O_EXCL | O_WRONLY, ""), EEXIST);
  EXPECT_EQ(make_folder("folder"), EEXIST);
  ASSERT_NO_FATAL_FAILURE(make_younger("lock"));
  if (IsSkipped()) return;
  fs::create_directory(shared("run"));
  write(shared("run/log"), "of the first");
  EXPECT_EQ(fill("lock", O_CREAT | O_EXCL | O_WRONLY, "own"), 0);
  EXPECT_EQ(seen("lock"), "own");
  EXPECT_EQ(fill("lock", O_CREAT | O_EXCL | O_WRONLY, "own"), EEXIST);
  EXPECT_EQ(make_folder("run"), 0);
  EXPECT_EQ(make_folder("run"), EEXIST);
  EXPECT_EQ(kind("run/log"), Kind::kNothing);
}

TEST_F(PrivateFiles, HideWhatTheFirstRankMayStillBeWriting) {
  begin_rank();
  ASSERT_NO_FATAL_FAILURE(make_younger("cache"));
  if (IsSkipped()) return;
  fs::create_directory(shared("run"));
  write(shared("run/log"), "of the first");
  for (const char* name : {"cache", "run"}) EXPECT_EQ(kind(name), Kind::kNothing);
  EXPECT_EQ(fill("cache", O_RDONLY, ""), ENOENT);
  EXPECT_EQ(fill("cache", O_CREAT | O_APPEND | O_WRONLY, "own"), 0);
  EXPECT_EQ(seen("cache"), "own");
  EXPECT_EQ(read(shared("cache")), "of the first");
  EXPECT_EQ(remove("cache"), 0);
  EXPECT_EQ(kind("cache"), Kind::kNothing);
  EXPECT_EQ(remove("cache"), ENOENT);
}

TEST_F(PrivateFiles, LetARankRenameWhatTheFirstOneHasRenamedAndMadeAnew) {
  begin_rank();
  fs::rename(shared("file"), shared("old"));
  ASSERT_NO_FATAL_FAILURE(make_younger("file"));
  if (IsSkipped()) return;
  EXPECT_EQ(rename("file", "old"), 0);
  EXPECT_EQ(seen("old"), "shared");
  EXPECT_EQ(kind("file"), Kind::kNothing);
  EXPECT_EQ(rename("file", "old"), ENOENT);
}

TEST_F(PrivateFiles, TellWhetherASharedFileWasChangedMeanwhile) {
  begin_rank();
  ASSERT_NO_FATAL_FAILURE(make_younger("later"));
  if (IsSkipped()) return;
  EXPECT_FALSE(is_changed_meanwhile(place("file")));
  write(shared("file"), "changed");
  EXPECT_TRUE(is_changed_meanwhile(place("file")));
  EXPECT_EQ(seen("file"), "changed");
  EXPECT_FALSE(is_changed_meanwhile(place("folder")));
  EXPECT_EQ(fill("file", O_WRONLY, ""), 0);
  EXPECT_FALSE(is_changed_meanwhile(place("file")));
}

TEST_F(PrivateFiles, AreSharedByThreads) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      for (int i = 0; i < 50; ++i) {
        const std::string name = "folder/" + std::to_string(thread) + "-" + std::to_string(i);
        EXPECT_EQ(fill(name, O_CREAT | O_EXCL | O_WRONLY, name), 0);
        EXPECT_EQ(rename(name, "latest"), 0);
        EXPECT_EQ(kind(name), Kind::kNothing);
        EXPECT_EQ(fill("file", O_WRONLY, "."), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(kind("latest"), Kind::kPrivate);
  EXPECT_EQ(seen("file").substr(0, 6), "shared");
  EXPECT_EQ(read(shared("file")), "shared");
}

TEST_F(PrivateFiles, RefuseWhatIsTooLongOrGoesRound) {
  Place found;
  const std::string name(300, 'x');
  EXPECT_EQ(find_place(AT_FDCWD, shared(name).c_str(), Follow::kNo, found), ENAMETOOLONG);
  std::string deep = shared("folder");
  while (deep.size() < PATH_MAX) deep += "/./folder";
  EXPECT_EQ(find_place(AT_FDCWD, deep.c_str(), Follow::kNo, found), ENAMETOOLONG);
  fs::create_symlink("loop", shared("loop"));
  EXPECT_EQ(find_place(AT_FDCWD, shared("loop").c_str(), Follow::kYes, found), ELOOP);
  EXPECT_EQ(find_place(AT_FDCWD, shared("file/x").c_str(), Follow::kYes, found), ENOTDIR);
  EXPECT_EQ(find_place(AT_FDCWD, shared("absent/x").c_str(), Follow::kYes, found), ENOENT);
}

TEST_F(PrivateFiles, LeaveOutWhatIsNoFileOfTheUser) {
  Place found;
  for (const char* path : {"/dev/null", "/proc/self/maps", "/sys/kernel", ""}) {
    EXPECT_EQ(find_place(AT_FDCWD, path, Follow::kYes, found), 0);
    EXPECT_EQ(found.kind, Kind::kOutside) << path;
  }
  fs::create_symlink("/dev", shared("devices"));
  EXPECT_EQ(fs::path(place("devices/null").file).lexically_normal(), "/dev/null");
  EXPECT_EQ(place("devices/null").kind, Kind::kOutside);
}

}  // namespace
}  // namespace spillway::preload
