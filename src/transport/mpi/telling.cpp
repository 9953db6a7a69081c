#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <thread>

#include "spillway/base/error.h"
#include "spillway/base/launcher.h"
#include "spillway/transport/mpi.h"

namespace spillway::transport {
namespace {

/// For the others of the host to come, and for the one that tells to end.
constexpr std::chrono::seconds kForOthers(2);
constexpr std::chrono::seconds kForTelling(30);
constexpr std::chrono::milliseconds kPause(20);

/// A name that one process of those that a launcher has started here may have at a time. It is of
/// no file: the kernel forgets it when the process ends, however it does.
class SharedName {
 public:
  SharedName() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const std::string name = message("spillway-tells-{}-{}", ::getuid(), ::getppid());
    address_.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), address_.sun_path + 1);  // Behind a 0: of no file.
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  ~SharedName() {
    if (socket_ >= 0) ::close(socket_);
  }
  SharedName(const SharedName&) = delete;
  SharedName& operator=(const SharedName&) = delete;

  /// Takes it; false where another one has it.
  bool take() {
    return ::bind(socket_, reinterpret_cast<const sockaddr*>(&address_), size_) == 0 ||
           errno != EADDRINUSE;
  }

  /// Lets the one who has the name count this process.
  void report() {
    ::sendto(socket_, "", 1, 0, reinterpret_cast<const sockaddr*>(&address_), size_);
  }

  /// How many have reported, at most `most` of them, which may take a while.
  std::uint32_t count(std::uint32_t most) {
    std::uint32_t counted = 0;
    const auto end = std::chrono::steady_clock::now() + kForOthers;
    for (char byte = 0; counted < most && std::chrono::steady_clock::now() < end;)
      if (::recv(socket_, &byte, 1, 0) == 1)
        ++counted;
      else
        std::this_thread::sleep_for(kPause);
    return counted;
  }

 private:
  const int socket_;
  sockaddr_un address_{};
  socklen_t size_ = 0;
};

}  // namespace

void tell_once_on_host(const std::function<void()>& tell) {
  SharedName name;
  if (!name.take()) {
    name.report();
    const auto end = std::chrono::steady_clock::now() + kForTelling;
    while (!name.take() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(kPause);
    return;
  }
  tell();
  const std::optional<Launcher> launcher = find_launcher();
  const std::uint32_t others = launcher && launcher->ranks > 0 ? launcher->ranks - 1 : 0;
  if (name.count(others) == others || launcher->variable != "PMI_SIZE") return;
  // Ranks that have started MPI wait there for this one. MPICH's launcher ends them for no exit
  // code, and for a signal.
  ::signal(SIGTERM, SIG_DFL);
  ::raise(SIGTERM);
}

}  // namespace spillway::transport
