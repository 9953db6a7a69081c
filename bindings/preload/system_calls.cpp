// System calls that take memory from the program, for kernels that let nobody serve their faults on
// spilled tensors: the memory is brought in and held while the call runs. Calls on any other
// memory, and all calls where the core holds nothing, go straight on.
//
// What the program hands to the kernel in other ways (io_uring, libaio, RDMA, the C library's own
// calls) is not seen here, and ends with EFAULT there.

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "registered_hooks.h"

#define SPILLWAY_VISIBLE __attribute__((visibility("default")))

namespace spillway::preload {
namespace {

// Pieces of tensors in one vector call, and pieces of any memory; what comes behind is left for the
// program's next call.
constexpr int kHeldPieces = 4;
constexpr int kPieces = 64;

enum class Use { kTaken, kFilled };  // By the call.

// The C library's own functions. Looked up when the library is loaded: in a forked child the
// loader's lock may be held for ever.
struct {
  decltype(&::read) read;
  decltype(&::write) write;
  decltype(&::pread) pread;
  decltype(&::pwrite) pwrite;
  decltype(&::readv) readv;
  decltype(&::writev) writev;
  decltype(&::preadv) preadv;
  decltype(&::pwritev) pwritev;
  decltype(&::recv) recv;
  decltype(&::send) send;
  decltype(&::recvmsg) recvmsg;
  decltype(&::sendmsg) sendmsg;
  decltype(&::process_vm_readv) process_vm_readv;
  decltype(&::fread) fread;
  decltype(&::fwrite) fwrite;
} known;

template <typename Function>
void look_up(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void look_up_all() {
  look_up("read", known.read);
  look_up("write", known.write);
  look_up("pread", known.pread);
  look_up("pwrite", known.pwrite);
  look_up("readv", known.readv);
  look_up("writev", known.writev);
  look_up("preadv", known.preadv);
  look_up("pwritev", known.pwritev);
  look_up("recv", known.recv);
  look_up("send", known.send);
  look_up("recvmsg", known.recvmsg);
  look_up("sendmsg", known.sendmsg);
  look_up("process_vm_readv", known.process_vm_readv);
  look_up("fread", known.fread);
  look_up("fwrite", known.fwrite);
}

/// The functions themselves, also for libraries whose constructors run before ours.
auto& real() {
  if (known.fwrite == nullptr) look_up_all();
  return known;
}

/// Memory that stays in place until the end of the scope.
class Held {
 public:
  Held() = default;
  ~Held() {
    const int error = errno;
    while (count_ > 0) registered_hooks()->release_memory(tokens_[--count_]);
    errno = error;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  static bool is_needed() {
    const SpillwayHooks* hooks = registered_hooks();
    return hooks != nullptr && hooks->hold_memory != nullptr;
  }

  /// Returns how many of the bytes may be passed on.
  size_t hold(const void* memory, size_t size, Use use) {
    if (count_ == kHeldPieces) return 0;
    void* token = nullptr;
    const size_t held =
        registered_hooks()->hold_memory(memory, size, use == Use::kFilled ? 1 : 0, &token);
    if (token != nullptr) tokens_[count_++] = token;
    return held;
  }

  /// Holds what `parts` point to and copies them to `passed`, shortened where not all can be held.
  /// Returns how many are left.
  int hold_parts(const iovec* parts, int count, Use use, iovec* passed) {
    for (int i = 0; i < count; ++i) {
      const size_t held = hold(parts[i].iov_base, parts[i].iov_len, use);
      if (held == 0 && parts[i].iov_len > 0) return i;
      passed[i] = {parts[i].iov_base, held};
      if (held < parts[i].iov_len) return i + 1;
    }
    return count;
  }

 private:
  void* tokens_[kHeldPieces];
  int count_ = 0;
};

bool is_seekable(int file) {
  const int error = errno;
  const bool seekable = lseek(file, 0, SEEK_CUR) != -1;
  errno = error;
  return seekable;
}

/// Carries out a transfer of `size` bytes in pieces that can be held. `call` is given where a piece
/// begins and how long it is. A pipe or socket may have less to give than was asked for, and then
/// must not be asked again.
template <typename Call>
ssize_t in_pieces(const void* memory, size_t size, Use use, bool may_ask_again, const Call& call) {
  if (!Held::is_needed()) return call(0, size);
  size_t done = 0;
  while (true) {
    Held piece;
    const size_t held = piece.hold(static_cast<const char*>(memory) + done, size - done, use);
    const ssize_t moved = call(done, held);
    if (moved < 0) return done > 0 ? static_cast<ssize_t>(done) : moved;
    done += static_cast<size_t>(moved);
    const bool is_short = static_cast<size_t>(moved) < held;
    if (done == size || is_short || !may_ask_again) return static_cast<ssize_t>(done);
  }
}

template <typename Call>
ssize_t with_parts(const iovec* parts, int count, Use use, const Call& call) {
  if (!Held::is_needed() || count <= 0) return call(parts, count);
  iovec passed[kPieces];
  Held held;
  return call(passed, held.hold_parts(parts, count < kPieces ? count : kPieces, use, passed));
}

template <typename Call>
ssize_t with_message(const msghdr* message, Use use, const Call& call) {
  if (!Held::is_needed() || message == nullptr || message->msg_iovlen > kPieces)
    return call(message);
  iovec passed[kPieces];
  Held held;
  msghdr copy = *message;
  const int count = static_cast<int>(message->msg_iovlen);
  copy.msg_iovlen = static_cast<size_t>(held.hold_parts(message->msg_iov, count, use, passed));
  copy.msg_iov = passed;
  return call(&copy);
}

template <typename Call>
size_t in_items(const void* memory, size_t item, size_t items, Use use, const Call& call) {
  if (!Held::is_needed() || item == 0) return call(0, item, items);
  const ssize_t done = in_pieces(memory, item * items, use, true, [&](size_t begin, size_t size) {
    return static_cast<ssize_t>(call(begin, 1, size));
  });
  return static_cast<size_t>(done) / item;
}

char* at(void* memory, size_t offset) { return static_cast<char*>(memory) + offset; }
const char* at(const void* memory, size_t offset) {
  return static_cast<const char*>(memory) + offset;
}

}  // namespace
}  // namespace spillway::preload

using namespace spillway::preload;  // NOLINT: what follows stands for functions of the C library.

extern "C" {

SPILLWAY_VISIBLE ssize_t read(int file, void* memory, size_t size) {
  const auto call = real().read;
  const bool again = Held::is_needed() && is_seekable(file);
  return in_pieces(memory, size, Use::kFilled, again, [&](size_t begin, size_t count) {
    return call(file, at(memory, begin), count);
  });
}

SPILLWAY_VISIBLE ssize_t write(int file, const void* memory, size_t size) {
  const auto call = real().write;
  return in_pieces(memory, size, Use::kTaken, true, [&](size_t begin, size_t count) {
    return call(file, at(memory, begin), count);
  });
}

SPILLWAY_VISIBLE ssize_t pread(int file, void* memory, size_t size, off_t from) {
  const auto call = real().pread;
  return in_pieces(memory, size, Use::kFilled, true, [&](size_t begin, size_t count) {
    return call(file, at(memory, begin), count, from + static_cast<off_t>(begin));
  });
}

SPILLWAY_VISIBLE ssize_t pread64(int file, void* memory, size_t size, off64_t from) {
  return pread(file, memory, size, from);
}

SPILLWAY_VISIBLE ssize_t pwrite(int file, const void* memory, size_t size, off_t to) {
  const auto call = real().pwrite;
  return in_pieces(memory, size, Use::kTaken, true, [&](size_t begin, size_t count) {
    return call(file, at(memory, begin), count, to + static_cast<off_t>(begin));
  });
}

SPILLWAY_VISIBLE ssize_t pwrite64(int file, const void* memory, size_t size, off64_t to) {
  return pwrite(file, memory, size, to);
}

SPILLWAY_VISIBLE ssize_t readv(int file, const iovec* parts, int count) {
  const auto call = real().readv;
  return with_parts(parts, count, Use::kFilled,
                    [&](const iovec* passed, int left) { return call(file, passed, left); });
}

SPILLWAY_VISIBLE ssize_t writev(int file, const iovec* parts, int count) {
  const auto call = real().writev;
  return with_parts(parts, count, Use::kTaken,
                    [&](const iovec* passed, int left) { return call(file, passed, left); });
}

SPILLWAY_VISIBLE ssize_t preadv(int file, const iovec* parts, int count, off_t from) {
  const auto call = real().preadv;
  return with_parts(parts, count, Use::kFilled,
                    [&](const iovec* passed, int left) { return call(file, passed, left, from); });
}

SPILLWAY_VISIBLE ssize_t preadv64(int file, const iovec* parts, int count, off64_t from) {
  return preadv(file, parts, count, from);
}

SPILLWAY_VISIBLE ssize_t pwritev(int file, const iovec* parts, int count, off_t to) {
  const auto call = real().pwritev;
  return with_parts(parts, count, Use::kTaken,
                    [&](const iovec* passed, int left) { return call(file, passed, left, to); });
}

SPILLWAY_VISIBLE ssize_t pwritev64(int file, const iovec* parts, int count, off64_t to) {
  return pwritev(file, parts, count, to);
}

SPILLWAY_VISIBLE ssize_t recv(int file, void* memory, size_t size, int flags) {
  const auto call = real().recv;
  const bool again = (flags & MSG_WAITALL) != 0;
  return in_pieces(memory, size, Use::kFilled, again, [&](size_t begin, size_t count) {
    return call(file, at(memory, begin), count, flags);
  });
}

SPILLWAY_VISIBLE ssize_t send(int file, const void* memory, size_t size, int flags) {
  const auto call = real().send;
  return in_pieces(memory, size, Use::kTaken, true, [&](size_t begin, size_t count) {
    return call(file, at(memory, begin), count, flags);
  });
}

SPILLWAY_VISIBLE ssize_t recvmsg(int file, msghdr* message, int flags) {
  const auto call = real().recvmsg;
  return with_message(message, Use::kFilled, [&](const msghdr* passed) {
    auto* const filled = const_cast<msghdr*>(passed);
    const ssize_t moved = call(file, filled, flags);
    if (filled != message) {
      message->msg_namelen = filled->msg_namelen;
      message->msg_controllen = filled->msg_controllen;
      message->msg_flags = filled->msg_flags;
    }
    return moved;
  });
}

SPILLWAY_VISIBLE ssize_t sendmsg(int file, const msghdr* message, int flags) {
  const auto call = real().sendmsg;
  return with_message(message, Use::kTaken,
                      [&](const msghdr* passed) { return call(file, passed, flags); });
}

SPILLWAY_VISIBLE ssize_t process_vm_readv(pid_t process, const iovec* local, unsigned long count,
                                          const iovec* remote, unsigned long remote_count,
                                          unsigned long flags) {
  const auto call = real().process_vm_readv;
  if (!Held::is_needed() || count > kPieces || remote_count > kPieces)
    return call(process, local, count, remote, remote_count, flags);
  iovec filled[kPieces];
  iovec taken[kPieces];
  Held held;
  const int left = held.hold_parts(local, static_cast<int>(count), Use::kFilled, filled);
  const bool is_own = process == getpid();
  const int sources =
      is_own ? held.hold_parts(remote, static_cast<int>(remote_count), Use::kTaken, taken) : 0;
  return call(process, filled, static_cast<unsigned long>(left), is_own ? taken : remote,
              is_own ? static_cast<unsigned long>(sources) : remote_count, flags);
}

SPILLWAY_VISIBLE size_t fread(void* memory, size_t item, size_t items, FILE* file) {
  const auto call = real().fread;
  return in_items(memory, item, items, Use::kFilled, [&](size_t begin, size_t size, size_t count) {
    return call(at(memory, begin), size, count, file);
  });
}

SPILLWAY_VISIBLE size_t fwrite(const void* memory, size_t item, size_t items, FILE* file) {
  const auto call = real().fwrite;
  return in_items(memory, item, items, Use::kTaken, [&](size_t begin, size_t size, size_t count) {
    return call(at(memory, begin), size, count, file);
  });
}

}  // extern "C"
