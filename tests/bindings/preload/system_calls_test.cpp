// The functions of the C library that bindings/preload replaces are those of this program. The
// memory that they are called with is not there, and comes as a tensor does.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absent_bytes.h"
#include "fake_tensor.h"
#include "support/temporary_directory.h"

namespace spillway::preload {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;

std::string pattern(std::size_t size, unsigned seed = 7) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 13 + seed) % 251);
  return bytes;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

ssize_t as_ssize(std::size_t size) { return static_cast<ssize_t>(size); }

/// A file in memory that holds `contents`.
int file_of(const std::string& contents) {
  const int file = ::memfd_create("contents", 0);
  EXPECT_EQ(::pwrite(file, contents.data(), contents.size(), 0), as_ssize(contents.size()));
  return file;
}

std::string contents_of(int file, std::size_t size) {
  std::string contents(size, '\0');
  EXPECT_EQ(::pread(file, contents.data(), size, 0), as_ssize(size));
  return contents;
}

/// `count` parts of `size` bytes from `memory` on.
std::vector<iovec> parts_of(char* memory, std::size_t count, std::size_t size) {
  std::vector<iovec> parts;
  for (std::size_t i = 0; i < count; ++i) parts.push_back({memory + i * size, size});
  return parts;
}

// --- Files -----------------------------------------------------------------------------------

TEST(Files, FillMemoryThatIsNotThereInPiecesThatAreHeld) {
  const std::string contents = pattern(5 * kFakePage + 100);
  const Descriptor file(file_of(contents));
  FakeTensor tensor({});
  EXPECT_EQ(::pread(file.get(), tensor.data() + 50, contents.size(), 0), as_ssize(contents.size()));
  EXPECT_EQ(tensor.text(50, contents.size()), contents);
  EXPECT_THAT(tensor.holds(),
              Each(AllOf(Field(&Hold::size, Le(2 * kFakePage)), Field(&Hold::is_filled, true),
                         Field(&Hold::is_direct, false))));
  EXPECT_EQ(tensor.bytes_held(), contents.size());
  EXPECT_EQ(tensor.holds_left(), 0U);
}

TEST(Files, TakeMemoryThatIsNotThere) {
  FakeTensor tensor({});
  tensor.fill_with_pattern(1);
  const std::string expected = tensor.text(0, tensor.size());
  const Descriptor file(file_of(""));
  tensor.leave();
  EXPECT_EQ(::write(file.get(), tensor.data(), tensor.size()), as_ssize(tensor.size()));
  EXPECT_EQ(contents_of(file.get(), tensor.size()), expected);
  EXPECT_THAT(tensor.holds(), Each(Field(&Hold::is_filled, false)));
}

TEST(Files, EndAReadWhereTheyEnd) {
  const std::string contents = pattern(3 * kFakePage + 17);
  const Descriptor file(file_of(contents));
  FakeTensor tensor({});
  EXPECT_EQ(::pread(file.get(), tensor.data(), tensor.size(), 0), as_ssize(contents.size()));
  EXPECT_EQ(tensor.text(0, contents.size()), contents);
  auto parts = parts_of(tensor.data(), 4, kFakePage);
  EXPECT_EQ(::preadv(file.get(), parts.data(), 4, 0), as_ssize(contents.size()));
}

TEST(Files, AreReadAgainWhenMemoryHasLeft) {
  const std::string contents = pattern(2 * kFakePage);
  const Descriptor file(file_of(contents));
  FakeTensor tensor({});
  tensor.when_one_comes(FakeTensor::Others::kLeaveOnce);
  EXPECT_EQ(::pread(file.get(), tensor.data(), contents.size(), 0), as_ssize(contents.size()));
  EXPECT_GT(tensor.pages_come(), 2U);
  EXPECT_EQ(tensor.text(0, contents.size()), contents);
}

TEST(Files, TellOfMemoryThatNeverStays) {
  const Descriptor file(file_of(pattern(2 * kFakePage)));
  FakeTensor tensor({});
  tensor.when_one_comes(FakeTensor::Others::kLeave);
  EXPECT_EQ(::pread(file.get(), tensor.data(), 2 * kFakePage, 0), -1);
  EXPECT_EQ(errno, EFAULT);
}

TEST(Files, ServeTheVectorCallsWithFlags) {
  FakeTensor tensor({});
  tensor.fill_with_pattern(2);
  const std::size_t size = std::size_t{3} * 3000;
  const std::string expected = tensor.text(0, size);
  const Descriptor file(file_of(""));
  auto parts = parts_of(tensor.data(), 3, 3000);
  tensor.leave();
  EXPECT_EQ(::pwritev2(file.get(), parts.data(), 3, 5, RWF_DSYNC), as_ssize(size));
  tensor.leave();
  EXPECT_EQ(::pwritev64v2(file.get(), parts.data(), 3, -1, 0), as_ssize(size));
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_CUR), as_ssize(size));
  EXPECT_EQ(contents_of(file.get(), size), expected);
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_SET), 0);
  auto others = parts_of(tensor.data() + 5 * kFakePage, 3, 3000);
  tensor.leave();
  EXPECT_EQ(::preadv2(file.get(), others.data(), 3, -1, 0), as_ssize(size));
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_CUR), as_ssize(size));
  EXPECT_EQ(tensor.text(5 * kFakePage, size), expected);
  tensor.leave();
  EXPECT_EQ(::preadv64v2(file.get(), others.data(), 3, 3000, 0), as_ssize(size - 3000 + 5));
  EXPECT_EQ(tensor.text(5 * kFakePage, 3000), expected.substr(3000, 3000));
}

TEST(Files, ServeTheStreamsOfTheCLibrary) {
  FakeTensor tensor({});
  tensor.fill_with_pattern(3);
  const std::size_t half = tensor.size() / 2;
  const std::string expected = tensor.text(0, half);
  struct Calls {
    decltype(&::fwrite) write;
    decltype(&::fread) read;
  };
  for (const Calls& calls :
       {Calls{&::fwrite, &::fread}, Calls{&::fwrite_unlocked, &::fread_unlocked}}) {
    std::FILE* const file = ::fdopen(file_of(""), "w+");
    tensor.leave();
    EXPECT_EQ(calls.write(tensor.data(), 8, half / 8, file), half / 8);
    EXPECT_EQ(std::fseek(file, 0, SEEK_SET), 0);
    tensor.leave();
    tensor.when_one_comes(FakeTensor::Others::kLeaveOnce);
    EXPECT_EQ(calls.read(tensor.data() + half, 8, half / 8, file), half / 8);
    EXPECT_EQ(std::ferror(file), 0);
    EXPECT_EQ(tensor.text(half, half), expected);
    std::fclose(file);
  }
}

// --- Sockets ---------------------------------------------------------------------------------

class Sockets {
 public:
  explicit Sockets(int type) { EXPECT_EQ(::socketpair(AF_UNIX, type, 0, ends_.data()), 0); }
  ~Sockets() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  int near() const { return ends_[0]; }
  int far() const { return ends_[1]; }

  std::string next_message() const {
    std::string message(1 << 18, '\0');
    const ssize_t size = ::recv(far(), message.data(), message.size(), MSG_DONTWAIT);
    message.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return message;
  }

 private:
  std::array<int, 2> ends_{};
};

class Messages : public ::testing::TestWithParam<int> {};

TEST_P(Messages, AreSentWholeHoweverManyPartsTheyHave) {
  FakeTensor tensor({});
  tensor.fill_with_pattern(4);
  const std::size_t size = std::size_t{100} * 300;  // More than may be in memory at once, too.
  const std::string expected = tensor.text(0, size);
  const Sockets sockets(GetParam());
  auto parts = parts_of(tensor.data(), 100, 300);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  tensor.leave();
  EXPECT_EQ(::sendmsg(sockets.near(), &message, 0), as_ssize(size));
  EXPECT_EQ(sockets.next_message(), expected);
  tensor.leave();
  EXPECT_EQ(::writev(sockets.near(), parts.data(), 100), as_ssize(size));
  EXPECT_EQ(sockets.next_message(), expected);
  tensor.leave();
  EXPECT_EQ(::send(sockets.near(), tensor.data(), size, 0), as_ssize(size));
  EXPECT_EQ(sockets.next_message(), expected);
  tensor.leave();
  EXPECT_EQ(::write(sockets.near(), tensor.data(), size), as_ssize(size));
  EXPECT_EQ(sockets.next_message(), expected);
}

TEST_P(Messages, AreReceivedWholeHoweverManyPartsTheyHave) {
  FakeTensor tensor({});
  const std::string sent = pattern(std::size_t{100} * 300);
  const Sockets sockets(GetParam());
  const auto send = [&] {
    EXPECT_EQ(::send(sockets.far(), sent.data(), sent.size(), 0), as_ssize(sent.size()));
    tensor.fill_with_pattern(0);
    tensor.leave();
  };
  auto parts = parts_of(tensor.data(), 100, 300);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  send();
  EXPECT_EQ(::recvmsg(sockets.near(), &message, 0), as_ssize(sent.size()));
  EXPECT_EQ(message.msg_flags & MSG_TRUNC, 0);
  EXPECT_EQ(tensor.text(0, sent.size()), sent);
  send();
  EXPECT_EQ(::readv(sockets.near(), parts.data(), 100), as_ssize(sent.size()));
  EXPECT_EQ(tensor.text(0, sent.size()), sent);
  send();
  EXPECT_EQ(::recv(sockets.near(), tensor.data(), tensor.size(), 0), as_ssize(sent.size()));
  EXPECT_EQ(tensor.text(0, sent.size()), sent);
  send();
  // The length of the message and no byte beyond the memory.
  EXPECT_EQ(::recv(sockets.near(), tensor.data(), 5 * kFakePage, MSG_TRUNC), as_ssize(sent.size()));
  EXPECT_EQ(tensor.text(0, 5 * kFakePage), sent.substr(0, 5 * kFakePage));
}

INSTANTIATE_TEST_SUITE_P(Types, Messages, ::testing::Values(SOCK_DGRAM, SOCK_SEQPACKET),
                         [](const auto& type) {
                           return type.param == SOCK_DGRAM ? "datagrams" : "packets";
                         });

TEST(Streams, TakeAllOfATensorAndPartsInTheirOrder) {
  FakeTensor tensor({});
  tensor.fill_with_pattern(5);
  const std::size_t size = std::size_t{100} * 300;
  const std::string expected = tensor.text(0, size);
  const Sockets sockets(SOCK_STREAM);
  tensor.leave();
  EXPECT_EQ(::send(sockets.near(), tensor.data(), size, 0), as_ssize(size));
  std::string received(size, '\0');
  EXPECT_EQ(::recv(sockets.far(), received.data(), size, MSG_WAITALL), as_ssize(size));
  EXPECT_EQ(received, expected);
  auto parts = parts_of(tensor.data(), 100, 300);
  tensor.leave();
  const ssize_t moved = ::writev(sockets.near(), parts.data(), 100);
  ASSERT_THAT(moved, AllOf(Ge(300), Le(as_ssize(size))));
  received.resize(static_cast<std::size_t>(moved));
  EXPECT_EQ(::recv(sockets.far(), received.data(), received.size(), MSG_WAITALL), moved);
  EXPECT_EQ(received, expected.substr(0, received.size()));
  EXPECT_THAT(tensor.holds(), IsEmpty());  // Nothing is held while a call may block.
}

// --- What stands for bytes of the first rank ----------------------------------------------------

constexpr std::size_t kRecord = std::size_t{1} << 20;

std::string text_of(split::AbsentBytes& absent, std::size_t size) {
  return {static_cast<const char*>(absent.of(size)), size};
}

std::size_t room_of(int file) {
  struct stat facts {};
  EXPECT_EQ(::fstat(file, &facts), 0);
  return static_cast<std::size_t>(facts.st_blocks) * 512;
}

TEST(AbsentBytes, BeginWithATextAndGoOnWithZeroes) {
  split::AbsentBytes absent;
  for (const std::size_t size : {std::size_t{1}, std::size_t{100}, kRecord, 5 * kRecord + 3}) {
    const std::string bytes = text_of(absent, size);
    const std::size_t text = std::min(size, std::size_t{64});
    EXPECT_EQ(split::AbsentBytes::are_at(bytes.data(), size), size >= 8);
    EXPECT_EQ(bytes.find_first_not_of('\0', text), std::string::npos);
    const auto* const memory = static_cast<const char*>(absent.of(size));
    EXPECT_EQ(absent.zeroes_at_end_of(memory, size), size - text);
    EXPECT_EQ(absent.zeroes_at_end_of(memory + text, size - text), size - text);
    EXPECT_EQ(absent.zeroes_at_end_of(bytes.data(), size), 0U);
  }
}

TEST(AbsentBytes, TakeNoRoomInAFile) {
  FakeTensor tensor({});
  const std::string expected = pattern(100) + text_of(tensor.absent(), kRecord) + pattern(50, 3) +
                               text_of(tensor.absent(), kRecord) + pattern(20);
  auto* const record = const_cast<void*>(tensor.absent().of(kRecord));
  const Descriptor file(file_of(""));
  std::string begin = pattern(100);
  std::array<iovec, 3> parts{
      {{begin.data(), 100}, {record, 1000}, {static_cast<char*>(record) + 1000, kRecord - 1000}}};
  EXPECT_EQ(::writev(file.get(), parts.data(), 3), as_ssize(100 + kRecord));
  EXPECT_EQ(::write(file.get(), pattern(50, 3).data(), 50), 50);
  EXPECT_EQ(::write(file.get(), record, kRecord), as_ssize(kRecord));
  EXPECT_EQ(::write(file.get(), pattern(20).data(), 20), 20);
  EXPECT_EQ(contents_of(file.get(), expected.size()), expected);
  EXPECT_LE(room_of(file.get()), 4 * kFakePage);
}

TEST(AbsentBytes, ReplaceWhatWasThere) {
  FakeTensor tensor({});
  std::string expected = pattern(3 * kRecord);
  const Descriptor file(file_of(expected));
  expected.replace(100, kRecord, text_of(tensor.absent(), kRecord));
  EXPECT_EQ(::lseek(file.get(), 100, SEEK_SET), 100);
  EXPECT_EQ(::write(file.get(), tensor.absent().of(kRecord), kRecord), as_ssize(kRecord));
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_CUR), as_ssize(100 + kRecord));
  EXPECT_EQ(contents_of(file.get(), expected.size()), expected);
  EXPECT_LE(room_of(file.get()), 2 * kRecord + 2 * kFakePage);
  // Half of it behind the end.
  EXPECT_EQ(::lseek(file.get(), 5 * kRecord / 2, SEEK_SET), as_ssize(5 * kRecord / 2));
  EXPECT_EQ(::write(file.get(), tensor.absent().of(kRecord), kRecord), as_ssize(kRecord));
  expected.replace(5 * kRecord / 2, kRecord / 2, text_of(tensor.absent(), kRecord));
  EXPECT_EQ(contents_of(file.get(), expected.size()), expected);
}

TEST(AbsentBytes, AreWrittenWhereNoHoleCanBe) {
  FakeTensor tensor({});
  const std::string text = text_of(tensor.absent(), kRecord);
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/log";
  for (const std::string& expected : {text, text + text}) {
    const Descriptor log(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND, 0600));
    EXPECT_EQ(::write(log.get(), tensor.absent().of(kRecord), kRecord), as_ssize(kRecord));
    EXPECT_EQ(contents_of(log.get(), expected.size()), expected);
  }
  const Sockets sockets(SOCK_STREAM);
  std::string received(kRecord, 'x');
  std::thread reader([&] {
    EXPECT_EQ(::recv(sockets.far(), received.data(), kRecord, MSG_WAITALL), as_ssize(kRecord));
  });
  EXPECT_EQ(::write(sockets.near(), tensor.absent().of(kRecord), kRecord), as_ssize(kRecord));
  reader.join();
  EXPECT_EQ(received, text);
  const Descriptor read_only(::open(path.c_str(), O_RDONLY));
  EXPECT_EQ(::write(read_only.get(), tensor.absent().of(kRecord), kRecord), -1);
  EXPECT_EQ(errno, EBADF);
}

// --- Pipes and sockets that are slow ----------------------------------------------------------

/// A pipe that holds one page, so that a call with more waits for the other end.
class Pipe {
 public:
  Pipe() {
    EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::fcntl(ends_[1], F_SETPIPE_SZ, kFakePage), as_ssize(kFakePage));
  }
  ~Pipe() {
    ::close(ends_[0]);
    close_in();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int out() const { return ends_[0]; }
  int in() const { return ends_[1]; }
  void close_in() {
    if (ends_[1] != -1) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_{};
};

FakeTensor::Options in_one_piece() {
  FakeTensor::Options options;
  options.bytes_at_once = options.pages * kFakePage;
  return options;
}

/// Reads until the end, and has the tensor leave each time that something has come: whoever wrote
/// that has touched all of its memory, and waits with the rest of it.
std::string read_slowly(int file, FakeTensor& tensor) {
  std::string all;
  std::string part(kFakePage, '\0');
  while (true) {
    const ssize_t moved = ::read(file, part.data(), part.size());
    if (moved <= 0) return all;
    all.append(part, 0, static_cast<std::size_t>(moved));
    tensor.leave();
  }
}

TEST(Pipes, TakeAllOfATensorThatLeavesWhileTheyAreFull) {
  FakeTensor tensor(in_one_piece());
  tensor.fill_with_pattern(10);
  const std::string expected = tensor.text(0, tensor.size());
  Pipe pipe;
  std::string received;
  std::thread reader([&] { received = read_slowly(pipe.out(), tensor); });
  EXPECT_EQ(::write(pipe.in(), tensor.data(), tensor.size()), as_ssize(tensor.size()));
  pipe.close_in();
  reader.join();
  EXPECT_TRUE(received == expected);
}

TEST(Streams, TakeAllOfATensorThatLeavesWhileTheyAreFull) {
  FakeTensor::Options options = in_one_piece();
  options.pages *= 16;
  options.bytes_at_once *= 8;
  FakeTensor tensor(options);
  tensor.fill_with_pattern(11);
  const std::string expected = tensor.text(0, tensor.size());
  const Sockets sockets(SOCK_STREAM);
  const int room = kFakePage;
  ASSERT_EQ(::setsockopt(sockets.near(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
  std::string received;
  std::thread reader([&] { received = read_slowly(sockets.far(), tensor); });
  EXPECT_EQ(::send(sockets.near(), tensor.data(), tensor.size(), 0), as_ssize(tensor.size()));
  ::shutdown(sockets.near(), SHUT_WR);
  reader.join();
  EXPECT_TRUE(received == expected);
}

TEST(Pipes, TakeWhatTheyHaveRoomForWhenTheyDoNotBlock) {
  FakeTensor tensor(in_one_piece());
  tensor.fill_with_pattern(12);
  Pipe pipe;
  ASSERT_EQ(::fcntl(pipe.in(), F_SETFL, O_NONBLOCK), 0);
  tensor.leave();
  EXPECT_EQ(::write(pipe.in(), tensor.data(), tensor.size()), as_ssize(kFakePage));
  EXPECT_EQ(::write(pipe.in(), tensor.data(), tensor.size()), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Streams, TakeWhatTheyHaveRoomForWhenTheyDoNotBlock) {
  FakeTensor::Options options = in_one_piece();
  options.pages = 1024;
  FakeTensor tensor(options);
  tensor.fill_with_pattern(13);
  const Sockets sockets(SOCK_STREAM);
  const ssize_t moved = ::send(sockets.near(), tensor.data(), tensor.size(), MSG_DONTWAIT);
  EXPECT_THAT(moved, AllOf(Ge(1), Le(as_ssize(tensor.size() - 1))));
  EXPECT_EQ(::send(sockets.near(), tensor.data(), tensor.size(), MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Pipes, EndAWriteThatASignalInterrupts) {
  FakeTensor tensor(in_one_piece());
  tensor.fill_with_pattern(14);
  const Pipe pipe;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  const pthread_t writer = ::pthread_self();
  std::thread other([&] {
    pollfd full{pipe.out(), POLLIN, 0};
    EXPECT_EQ(::poll(&full, 1, -1), 1);  // The writer waits from now on.
    EXPECT_EQ(::pthread_kill(writer, SIGUSR1), 0);
  });
  EXPECT_EQ(::write(pipe.in(), tensor.data(), tensor.size()), as_ssize(kFakePage));
  other.join();
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

/// In parts, and has the tensor leave before each of them.
void send_slowly(int socket, const std::string& bytes, FakeTensor& tensor) {
  constexpr std::size_t kPart = 3000;
  for (std::size_t sent = 0; sent < bytes.size(); sent += kPart) {
    const std::string part = bytes.substr(sent, kPart);
    tensor.leave();
    EXPECT_EQ(::send(socket, part.data(), part.size(), 0), as_ssize(part.size()));
  }
}

TEST(Streams, FillAllOfATensorThatIsWaitedFor) {
  FakeTensor tensor({});
  const std::string sent = pattern(tensor.size());
  const Sockets sockets(SOCK_STREAM);
  const auto check = [&](const auto& call) {
    tensor.fill_with_pattern(0);
    std::thread sender([&] { send_slowly(sockets.far(), sent, tensor); });
    EXPECT_EQ(call(), as_ssize(sent.size()));
    sender.join();
    EXPECT_TRUE(tensor.text(0, sent.size()) == sent);
  };
  check([&] { return ::recv(sockets.near(), tensor.data(), tensor.size(), MSG_WAITALL); });
  check([&] {
    return ::recvfrom(sockets.near(), tensor.data(), tensor.size(), MSG_WAITALL, nullptr, nullptr);
  });
  EXPECT_THAT(tensor.holds(), IsEmpty());
}

TEST(Streams, FillWhatThereIsWhereTheyEndOrNobodyWaits) {
  FakeTensor tensor({});
  const std::string sent = pattern(5 * kFakePage + 100);
  const Sockets sockets(SOCK_STREAM);
  const std::size_t begin = 2 * kFakePage;
  send_slowly(sockets.far(), sent, tensor);
  ::shutdown(sockets.far(), SHUT_WR);
  // What is only looked at is not taken, and would come twice.
  const ssize_t seen = ::recv(sockets.near(), tensor.data(), tensor.size(), MSG_PEEK | MSG_WAITALL);
  ASSERT_THAT(seen, AllOf(Ge(1), Le(as_ssize(2 * kFakePage))));
  const auto seen_bytes = static_cast<std::size_t>(seen);
  EXPECT_TRUE(tensor.text(0, seen_bytes) == sent.substr(0, seen_bytes));
  EXPECT_EQ(::recv(sockets.near(), tensor.data(), begin, 0), as_ssize(begin));
  tensor.leave();
  EXPECT_EQ(::recv(sockets.near(), tensor.data() + begin, tensor.size() - begin, MSG_WAITALL),
            as_ssize(sent.size() - begin));
  EXPECT_TRUE(tensor.text(0, sent.size()) == sent);
}

TEST(Pipes, AreNotHeldUnderTheStreamsOfTheCLibrary) {
  FakeTensor tensor({});
  tensor.fill_with_pattern(15);
  const std::size_t half = tensor.size() / 2;
  const std::string expected = tensor.text(0, half);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  std::FILE* const out = ::fdopen(ends[0], "r");
  std::FILE* const in = ::fdopen(ends[1], "w");
  tensor.leave();
  EXPECT_EQ(std::fwrite(tensor.data(), 8, half / 8 - 2, in), half / 8 - 2);
  std::fclose(in);
  tensor.leave();
  EXPECT_EQ(std::fread(tensor.data() + half, 8, half / 8, out), half / 8 - 2);
  EXPECT_NE(std::feof(out), 0);
  std::fclose(out);
  EXPECT_TRUE(tensor.text(half, half - 16) == expected.substr(0, half - 16));
  EXPECT_THAT(tensor.holds(), IsEmpty());
}

// --- Direct I/O ------------------------------------------------------------------------------

/// The kernel serves faults here, so all memory is there, and only direct I/O needs help.
class DirectIo : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = directory_.path() + "/file";
    file_ = std::make_unique<Descriptor>(
        ::open(path_.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600));
    if (file_->get() < 0)
      GTEST_SKIP() << "no direct I/O on the file system of " << directory_.path();
    const Descriptor plain(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::write(plain.get(), contents_.data(), contents_.size()), as_ssize(contents_.size()));
  }

  int file() const { return file_->get(); }

  static FakeTensor::Options served() {
    FakeTensor::Options options;
    options.kernel_serves_faults = true;
    options.bytes_at_once = 4 * kFakePage;
    return options;
  }

  static constexpr std::size_t kSize = 8 * kFakePage;
  const std::string contents_ = pattern(kSize);
  TemporaryDirectory directory_;
  std::string path_;
  std::unique_ptr<Descriptor> file_;
};

void expect_all_held(const FakeTensor& tensor, std::size_t before, std::size_t size,
                     bool is_filled) {
  EXPECT_EQ(tensor.bytes_held() - before, size);
  EXPECT_EQ(tensor.holds_left(), 0U);
  EXPECT_EQ(tensor.holds().back().is_filled, is_filled);
  EXPECT_THAT(tensor.holds(), Each(Field(&Hold::is_direct, true)));
}

TEST_F(DirectIo, HoldsWhatTheDeviceFills) {
  FakeTensor tensor(served());
  auto parts = parts_of(tensor.data(), 2, kSize / 2);
  const auto check = [&](const char* name, const auto& call) {
    SCOPED_TRACE(name);
    tensor.fill_with_pattern(0);
    const std::size_t before = tensor.bytes_held();
    EXPECT_EQ(call(), as_ssize(kSize));
    EXPECT_EQ(tensor.text(0, kSize), contents_);
    expect_all_held(tensor, before, kSize, /*is_filled=*/true);
  };
  check("read", [&] { return ::read(file(), tensor.data(), kSize); });
  check("pread", [&] { return ::pread(file(), tensor.data(), kSize, 0); });
  EXPECT_EQ(::lseek(file(), 0, SEEK_SET), 0);
  check("readv", [&] { return ::readv(file(), parts.data(), 2); });
  check("preadv", [&] { return ::preadv(file(), parts.data(), 2, 0); });
  check("preadv2", [&] { return ::preadv2(file(), parts.data(), 2, 0, 0); });
}

TEST_F(DirectIo, HoldsWhatTheDeviceTakes) {
  FakeTensor tensor(served());
  tensor.fill_with_pattern(6);
  auto parts = parts_of(tensor.data(), 2, kSize / 2);
  const auto check = [&](const char* name, const auto& call) {
    SCOPED_TRACE(name);
    const std::size_t before = tensor.bytes_held();
    EXPECT_EQ(call(), as_ssize(kSize));
    expect_all_held(tensor, before, kSize, /*is_filled=*/false);
  };
  check("pwrite", [&] { return ::pwrite(file(), tensor.data(), kSize, 0); });
  check("writev", [&] { return ::writev(file(), parts.data(), 2); });
  check("pwritev2", [&] { return ::pwritev2(file(), parts.data(), 2, 0, 0); });
  const Descriptor plain(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(contents_of(plain.get(), kSize), tensor.text(0, kSize));
}

TEST_F(DirectIo, IsTheOnlyKindThatIsHeldWhereTheKernelServesFaults) {
  FakeTensor tensor(served());
  tensor.fill_with_pattern(7);
  const Descriptor plain(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(::pwrite(plain.get(), tensor.data(), kSize, 0), as_ssize(kSize));
  EXPECT_EQ(::pread(plain.get(), tensor.data(), kSize, 0), as_ssize(kSize));
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_DIRECT | O_CLOEXEC), 0);
  const Descriptor out(pipe[0]);
  const Descriptor in(pipe[1]);
  EXPECT_EQ(::write(in.get(), tensor.data(), 100), 100);
  EXPECT_EQ(::read(out.get(), tensor.data(), 100), 100);
  EXPECT_THAT(tensor.holds(), IsEmpty());
  EXPECT_EQ(tensor.pages_come(), 0U);
}

TEST_F(DirectIo, NeverMeetsMemoryThatCannotBeHeld) {
  FakeTensor::Options options = served();
  options.pages = 600;  // More than the buffer takes at once.
  options.bytes_at_once = 400 * kFakePage;
  options.can_hold = false;
  FakeTensor tensor(options);
  tensor.fill_with_pattern(8);
  const std::string expected = tensor.text(0, tensor.size());
  // The device would be refused: of this memory no two pages are there at a time.
  tensor.leave();
  tensor.when_one_comes(FakeTensor::Others::kLeave);
  EXPECT_EQ(::pwrite(file(), tensor.data(), tensor.size(), 0), as_ssize(tensor.size()));
  const Descriptor plain(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(contents_of(plain.get(), tensor.size()), expected);
  tensor.fill_with_pattern(9);
  tensor.leave();
  EXPECT_EQ(::pread(file(), tensor.data(), tensor.size(), 0), as_ssize(tensor.size()));
  tensor.when_one_comes(FakeTensor::Others::kStay);
  EXPECT_EQ(tensor.text(0, tensor.size()), expected);
}

}  // namespace
}  // namespace spillway::preload
