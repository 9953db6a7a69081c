#include "spillway/base/own_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string>

namespace spillway {
namespace {

/// A pipe with a number for each end.
struct Pipe {
  Pipe() { EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0); }
  int reading() const { return ends[0]; }
  int writing() const { return ends[1]; }
  std::array<int, 2> ends{-1, -1};
};

std::string text_in(const Pipe& pipe) {
  char text[64] = {};
  pollfd asked{pipe.reading(), POLLIN, 0};
  if (::poll(&asked, 1, 0) != 1 || (asked.revents & POLLIN) == 0) return "";
  return {text, static_cast<std::size_t>(::read(pipe.reading(), text, sizeof text))};
}

class OwnDescriptorsCase : public testing::Test {
 protected:
  void SetUp() override {
    if (!own_.is_apart()) GTEST_SKIP() << own_.why_shared();
  }
  OwnDescriptors own_;
};

TEST_F(OwnDescriptorsCase, MeanOtherFilesThanTheSameNumbersOfTheProgram) {
  Pipe ours;
  own_.run([&] { ours = Pipe(); });
  const Pipe programs;
  // Whatever the program closes and opens, by whatever call.
  ::syscall(SYS_dup2, programs.writing(), ours.writing());
  ASSERT_EQ(::write(ours.writing(), "mine", 4), 4);
  own_.run([&] { ASSERT_EQ(::write(ours.writing(), "ours", 4), 4); });
  EXPECT_EQ(text_in(programs), "mine");
  own_.run([&] { EXPECT_EQ(text_in(ours), "ours"); });
  ::syscall(SYS_close, ours.writing());
  own_.run([&] { EXPECT_EQ(::write(ours.writing(), "ours", 4), 4); });
}

TEST_F(OwnDescriptorsCase, AreSharedByTheThreadsThatAreStartedThere) {
  Pipe ours;
  own_.run([&] { ours = Pipe(); });
  std::thread thread = own_.start_thread([&] {
    EXPECT_TRUE(own_.is_current());
    EXPECT_EQ(::write(ours.writing(), "ours", 4), 4);
  });
  thread.join();
  own_.run([&] { EXPECT_EQ(text_in(ours), "ours"); });
  EXPECT_FALSE(own_.is_current());
}

TEST_F(OwnDescriptorsCase, LetThePipesOfTheProgramEnd) {
  const Pipe programs;
  const OwnDescriptors later;
  ::close(programs.writing());
  pollfd asked{programs.reading(), POLLIN, 0};
  ASSERT_EQ(::poll(&asked, 1, 0), 1) << "somebody still has the end to write to";
  EXPECT_NE(asked.revents & POLLHUP, 0);
}

TEST_F(OwnDescriptorsCase, NeverGiveAFileANumberThatIsPrintedTo) {
  own_.run([] {
    const int file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    EXPECT_GT(file, STDERR_FILENO);
    ::close(file);
  });
}

TEST_F(OwnDescriptorsCase, LendAFileUnderAHighNumberThatNoOtherProgramInherits) {
  Pipe ours;
  own_.run([&] { ours = Pipe(); });
  const int lent = own_.lend(ours.writing());
  ASSERT_GE(lent, 0);
  EXPECT_GE(lent, 1000);
  EXPECT_EQ(::fcntl(lent, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(::write(lent, "lent", 4), 4);
  own_.run([&] { EXPECT_EQ(text_in(ours), "lent"); });
  ::close(lent);
}

TEST_F(OwnDescriptorsCase, CannotLendWhereTheProgramMayOpenNothingMore) {
  Pipe ours;
  own_.run([&] { ours = Pipe(); });
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const int lent = own_.lend(ours.writing());
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(lent, -1);
}

TEST_F(OwnDescriptorsCase, AreShownToChildrenForAsLongAsTheForkTakes) {
  Pipe ours;
  own_.run([&] { ours = Pipe(); });
  own_.show_to_children(ours.writing());
  ASSERT_TRUE(own_.begin_fork());
  const int shown = own_.number_in_child(ours.writing());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(!own_.is_reachable() && ::write(shown, "child", 5) == 5 ? 0 : 1);
  own_.end_fork_in_parent();
  EXPECT_EQ(identity_of(shown), FileIdentity{}) << "it was left in the table of the program";
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  own_.run([&] { EXPECT_EQ(text_in(ours), "child"); });
}

TEST_F(OwnDescriptorsCase, HandOnWhatAJobThrows) {
  EXPECT_THROW(own_.run([] { throw std::runtime_error("no"); }), std::runtime_error);
  bool is_done = false;
  own_.run([&] { is_done = true; });
  EXPECT_TRUE(is_done);
}

TEST(OwnDescriptors, TellLastWordsWhereTheProgramReadsThem) {
  const auto die = [] {
    OwnDescriptors own;
    own.start_thread([] { throw std::runtime_error("the reason"); }).join();
  };
  EXPECT_DEATH(die(), "internal error: the reason");
}

TEST(MovedUp, LeavesTheNumbersThatProgramsCountOn) {
  const int low = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int high = moved_up(low);
  EXPECT_GE(high, 1000);
  EXPECT_EQ(::fcntl(low, F_GETFD), -1);
  EXPECT_EQ(::fcntl(high, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  ::close(high);
  EXPECT_EQ(moved_up(-1), -1);
}

}  // namespace
}  // namespace spillway
