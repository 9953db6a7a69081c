// Sockets with a name in the file system: where the files of the process are its own
// (private_files.h), so are these.

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "file_calls.h"
#include "next_function.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

decltype(&::bind) known_bind;
decltype(&::connect) known_connect;
decltype(&::getsockname) known_getsockname;

/// Names as the program gave them, by the socket's number: other processes of the rank may be told
/// what `getsockname` says, and where a name is too long for its place that is of this process
/// only.
constexpr int kSockets = 1024;
char* names[kSockets];

void note_name(int socket, const char* path) {
  if (socket < 0 || socket >= kSockets) return;
  free(__atomic_exchange_n(&names[socket], strdup(path), __ATOMIC_ACQ_REL));
}

const char* last_part(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

constexpr size_t kNameBegins = offsetof(sockaddr_un, sun_path);

/// Whether an address is a path, which is then copied with an end.
bool has_path(const sockaddr* address, socklen_t size, char (&path)[sizeof(sockaddr_un)]) {
  if (!has_private_files() || address == nullptr || size <= kNameBegins ||
      size > sizeof(sockaddr_un) || address->sa_family != AF_UNIX)
    return false;
  memset(path, 0, sizeof path);
  memcpy(path, reinterpret_cast<const char*>(address) + kNameBegins, size - kNameBegins);
  return path[0] != '\0';
}

/// Addresses have room for short paths only; a longer one is reached through its open folder.
class Address {
 public:
  explicit Address(const char* path) {
    const size_t length = strlen(path);
    const char* slash = strrchr(path, '/');
    if (length < sizeof address_.sun_path) {
      memcpy(address_.sun_path, path, length);
    } else if (slash != nullptr && strlen(slash) < kNameMax) {
      char parent[PATH_MAX];
      snprintf(parent, sizeof parent, "%.*s", static_cast<int>(slash - path), path);
      folder_ = raw::open_file(parent, O_PATH | O_DIRECTORY);
      const int begun = snprintf(address_.sun_path, sizeof address_.sun_path, kOpen, folder_);
      memcpy(address_.sun_path + begun, slash, strlen(slash));
    }
  }
  ~Address() {
    if (folder_ >= 0) raw::close_file(folder_);
  }
  Address(const Address&) = delete;
  Address& operator=(const Address&) = delete;

  bool fits() const { return address_.sun_path[0] != '\0'; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  static constexpr socklen_t size() { return sizeof(sockaddr_un); }

 private:
  static constexpr char kOpen[] = "/proc/self/fd/%d";
  static constexpr size_t kNameMax = sizeof(sockaddr_un::sun_path) - sizeof kOpen - 10;
  sockaddr_un address_{AF_UNIX, {}};
  int folder_ = -1;
};

template <class Call>
int call_with(const char* path, const Call& call) {
  const Address address(path);
  if (address.fits()) return call(address.get(), Address::size());
  errno = ENAMETOOLONG;
  return -1;
}

}  // namespace
}  // namespace spillway::preload

using namespace spillway::preload;  // NOLINT: what follows stands for functions of the C library.

extern "C" {

SPILLWAY_VISIBLE int bind(int socket, __CONST_SOCKADDR_ARG address, socklen_t size) noexcept {
  const auto call = next_function(known_bind, "bind");
  char path[sizeof(sockaddr_un)];
  if (!has_path(address, size, path)) return call(socket, address, size);
  const auto bind_there = [&](const sockaddr* there, socklen_t length) {
    const int result = call(socket, there, length);
    if (result == 0) note_name(socket, path);
    return result;
  };
  const auto change = [&](Place& place) {
    const int refused = ready_for_new(place);
    const int error = refused == EEXIST ? EADDRINUSE : refused;
    return error == 0 && call_with(place.file, bind_there) != 0 ? errno : error;
  };
  return change_place(AT_FDCWD, path, Follow::kNo, change,
                      [&](int, const char*) { return call(socket, address, size); });
}

SPILLWAY_VISIBLE int getsockname(int socket, __SOCKADDR_ARG address,
                                 socklen_t* __restrict size) noexcept {
  const auto call = next_function(known_getsockname, "getsockname");
  const socklen_t room = size == nullptr ? 0 : *size;
  const int result = call(socket, address, size);
  char path[sizeof(sockaddr_un)];
  if (result != 0 || socket < 0 || socket >= kSockets || !has_path(address, *size, path))
    return result;
  const char* name = __atomic_load_n(&names[socket], __ATOMIC_ACQUIRE);
  // The number may have become another socket's.
  if (name == nullptr || strcmp(last_part(name), last_part(path)) != 0) return result;
  sockaddr_un given{AF_UNIX, {}};
  memcpy(given.sun_path, name, strlen(name));
  *size = static_cast<socklen_t>(kNameBegins + strlen(name) + 1);
  memcpy(static_cast<void*>(static_cast<sockaddr*>(address)), &given, *size < room ? *size : room);
  return result;
}

SPILLWAY_VISIBLE int connect(int socket, __CONST_SOCKADDR_ARG address, socklen_t size) {
  const auto call = next_function(known_connect, "connect");
  char path[sizeof(sockaddr_un)];
  if (!has_path(address, size, path)) return call(socket, address, size);
  return at_place(AT_FDCWD, path, Follow::kYes, [&](int, const char* found) {
    return call_with(found, [&](const sockaddr* there, socklen_t length) {
      return call(socket, there, length);
    });
  });
}

}  // extern "C"
