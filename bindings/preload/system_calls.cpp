// System calls that take memory from the program, for kernels that let nobody serve their faults on
// spilled tensors, and for direct I/O everywhere. On any other memory, and where the core names no
// tensors, a call goes straight on.
//
// A transfer with a file is made in pieces, each held in memory while the kernel works on it. A
// call that may block (pipes, sockets) holds nothing, which would stand in the way of operators for
// as long as it blocks: its memory is touched, so that it is there, and the call repeated when it
// has left again before the kernel came to it. One that waits for all goes on where its memory has
// ended it early, and only there: a signal or a timeout ends it for the program, too.
//
// Direct I/O lets the device write to frames without a fault that anybody could see, so pages that
// are not held might be saved while they are being filled. What cannot be held goes through a
// buffer.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "holes.h"
#include "rank_notices.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

constexpr uintptr_t kTouchEvery = 4096;
// Times that memory may leave between its being touched and the kernel's coming to it.
constexpr int kAttempts = 1000;
constexpr size_t kPartsMax = IOV_MAX;
constexpr size_t kLeastOfRecord = size_t{32} << 10;
constexpr unsigned kParts = 64;  // Of one vector call on a pipe or socket; the rest is left over.
constexpr size_t kBufferBytes = size_t{1} << 20;  // Of direct I/O that cannot go on in place.
constexpr size_t kBlock = 4096;                   // What direct I/O may want its memory aligned to.

enum class Use { kTaken, kFilled };     // By the call.
enum class Wait { kForSome, kForAll };  // Of a call on a pipe or socket, if it may wait.

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
  decltype(&::preadv2) preadv2;
  decltype(&::pwritev) pwritev;
  decltype(&::pwritev2) pwritev2;
  decltype(&::recv) recv;
  decltype(&::send) send;
  decltype(&::recvfrom) recvfrom;
  decltype(&::sendto) sendto;
  decltype(&::recvmsg) recvmsg;
  decltype(&::sendmsg) sendmsg;
  decltype(&::process_vm_readv) process_vm_readv;
  decltype(&::process_vm_writev) process_vm_writev;
  decltype(&::fread) fread;
  decltype(&::fread_unlocked) fread_unlocked;
  decltype(&::fwrite) fwrite;
  decltype(&::fwrite_unlocked) fwrite_unlocked;
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
  look_up("preadv2", known.preadv2);
  look_up("pwritev", known.pwritev);
  look_up("pwritev2", known.pwritev2);
  look_up("recv", known.recv);
  look_up("send", known.send);
  look_up("recvfrom", known.recvfrom);
  look_up("sendto", known.sendto);
  look_up("recvmsg", known.recvmsg);
  look_up("sendmsg", known.sendmsg);
  look_up("process_vm_readv", known.process_vm_readv);
  look_up("process_vm_writev", known.process_vm_writev);
  look_up("fread", known.fread);
  look_up("fread_unlocked", known.fread_unlocked);
  look_up("fwrite", known.fwrite);
  look_up("fwrite_unlocked", known.fwrite_unlocked);
}

/// The functions themselves, also for libraries whose constructors run before ours.
auto& real() {
  if (known.fwrite == nullptr) look_up_all();
  return known;
}

/// Null where no system call ever needs help.
const SpillwayHooks* tensor_hooks() {
  const SpillwayHooks* hooks = registered_hooks();
  return hooks != nullptr && hooks->tensor_bytes != nullptr ? hooks : nullptr;
}

/// Bytes from `memory` on that lie in a tensor and need help, no more than may be in memory at
/// once; 0: none.
size_t tensor_bytes(const void* memory, size_t size) {
  const SpillwayHooks* hooks = tensor_hooks();
  if (hooks == nullptr) return 0;
  const size_t bytes = hooks->tensor_bytes(memory, size);
  return bytes < hooks->bytes_at_once ? bytes : hooks->bytes_at_once;
}

/// Parts that the kernel would refuse are not looked at.
bool has_tensor(const iovec* parts, size_t count) {
  if (tensor_hooks() == nullptr || count > kPartsMax) return false;
  for (size_t i = 0; i < count; ++i)
    if (tensor_bytes(parts[i].iov_base, parts[i].iov_len) > 0) return true;
  return false;
}

/// Sets errno back to what it was.
class KeptErrno {
 public:
  KeptErrno() = default;
  ~KeptErrno() { errno = error_; }
  KeptErrno(const KeptErrno&) = delete;
  KeptErrno& operator=(const KeptErrno&) = delete;

 private:
  int error_ = errno;
};

bool is_file(int descriptor) {
  const KeptErrno kept;
  return lseek(descriptor, 0, SEEK_CUR) != -1;
}

bool is_direct(int descriptor) {
  const KeptErrno kept;
  const int flags = fcntl(descriptor, F_GETFL);
  return flags != -1 && (flags & O_DIRECT) != 0;
}

/// 0: it is no socket.
int socket_type(int descriptor) {
  const KeptErrno kept;
  int type = 0;
  socklen_t length = sizeof type;
  return getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) == 0 ? type : 0;
}

/// A socket on which one call is one message: what is cut off of it is lost.
bool keeps_messages(int descriptor) {
  const int type = socket_type(descriptor);
  return type != 0 && type != SOCK_STREAM;
}

/// Events of poll, without waiting for any.
int state_of(int descriptor) {
  const KeptErrno kept;
  pollfd asked{descriptor, POLLIN | POLLOUT, 0};
  return poll(&asked, 1, 0) == 1 ? asked.revents : 0;
}

/// What a call on tensors needs.
enum class Help {
  kNone,
  kTouched,       ///< Its memory brought in.
  kHeld,          ///< Its memory kept there.
  kHeldOrCopied,  ///< The device must not meet memory that may leave.
};

Help help_for(int descriptor) {
  const bool is_served = registered_hooks()->kernel_serves_faults != 0;
  const bool is_to_be_held = is_direct(descriptor);
  if (is_served && !is_to_be_held) return Help::kNone;
  // O_DIRECT on a pipe is about packets.
  if (!is_file(descriptor)) return is_served ? Help::kNone : Help::kTouched;
  return is_to_be_held ? Help::kHeldOrCopied : Help::kHeld;
}

/// Has the memory brought in by using it: read, and written back as it is where it will be filled.
void touch(const void* memory, size_t size, Use use) {
  auto* const bytes = static_cast<unsigned char*>(const_cast<void*>(memory));
  for (size_t at = 0; at < size;) {
    if (use == Use::kFilled) {
      __atomic_fetch_or(bytes + at, 0, __ATOMIC_RELAXED);
    } else {
      static_cast<void>(__atomic_load_n(bytes + at, __ATOMIC_RELAXED));
    }
    at += kTouchEvery - (reinterpret_cast<uintptr_t>(bytes + at) & (kTouchEvery - 1));
  }
}

/// Memory that stays until the end of the scope: for a device always, else unless operators need
/// all there is. The thread cannot be cancelled meanwhile, or it would stay for ever.
class Held {
 public:
  Held(const void* memory, size_t size, Use use, Help help) {
    const KeptErrno kept;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    token_ = registered_hooks()->hold_memory(memory, size, use == Use::kFilled ? 1 : 0,
                                             help == Help::kHeldOrCopied ? 1 : 0);
  }
  ~Held() {
    const KeptErrno kept;
    if (token_ != nullptr) registered_hooks()->release_memory(token_);
    pthread_setcancelstate(cancel_state_, nullptr);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  bool is_certain() const { return token_ != nullptr; }

 private:
  void* token_ = nullptr;
  int cancel_state_ = PTHREAD_CANCEL_ENABLE;
};

/// Repeats a call whose memory has left before the kernel came to it; nothing was transferred then.
template <typename Call, typename Touch>
auto until_it_stays(const Touch& touch_all, const Call& call) {
  for (int attempt = 1;; ++attempt) {
    touch_all();
    const auto moved = call();
    if (moved >= 0 || errno != EFAULT || attempt == kAttempts) return moved;
  }
}

/// A part of some memory that is transferred at once: what lies in a tensor and may be in memory
/// together, or all the rest.
struct Piece {
  const char* from;
  size_t begin;
  size_t size;
  bool is_tensor;
};

/// One transfer in pieces, until all is done, `one_piece` fails, or one of them is the last.
template <typename OnePiece, typename IsLast>
ssize_t in_pieces(const void* memory, size_t size, const OnePiece& one_piece,
                  const IsLast& is_last) {
  size_t done = 0;
  while (true) {
    const auto* const from = static_cast<const char*>(memory) + done;
    const size_t tensor = tensor_bytes(from, size - done);
    const Piece piece{from, done, tensor > 0 ? tensor : size - done, tensor > 0};
    const ssize_t moved = one_piece(piece);
    if (moved < 0) return done > 0 ? static_cast<ssize_t>(done) : moved;
    done += static_cast<size_t>(moved);
    if (done == size || is_last(piece, static_cast<size_t>(moved)))
      return static_cast<ssize_t>(done);
  }
}

char* at(const void* memory, size_t offset) {
  return static_cast<char*>(const_cast<void*>(memory)) + offset;
}

template <typename Call>
ssize_t touch_and_call(const Piece& piece, Use use, const Call& call) {
  return until_it_stays([&] { touch(piece.from, piece.size, use); },
                        [&] { return call(at(piece.from, 0), piece.begin, piece.size); });
}

/// Direct I/O on memory that cannot be held: through a buffer that lies in its blocks as the memory
/// does, and as far as the buffer reaches. Nothing of it is on the way when the call has ended.
template <typename Call>
ssize_t through_buffer(const Piece& piece, Use use, const Call& call) {
  void* blocks = nullptr;
  if (posix_memalign(&blocks, kBlock, kBufferBytes + kBlock) != 0) {
    errno = ENOMEM;
    return -1;
  }
  char* const buffer = at(blocks, reinterpret_cast<uintptr_t>(piece.from) % kBlock);
  const size_t size = piece.size < kBufferBytes ? piece.size : kBufferBytes;
  if (use == Use::kTaken) memcpy(buffer, piece.from, size);
  const ssize_t moved = call(buffer, piece.begin, size);
  if (use == Use::kFilled && moved > 0)
    memcpy(at(piece.from, 0), buffer, static_cast<size_t>(moved));
  const KeptErrno kept;
  free(blocks);
  return moved;
}

/// With a file, or what the C library reads and writes until it has all; `call` is given the memory
/// of a piece, where in all of it that begins, and a size.
template <typename Call>
ssize_t with_file(const void* memory, size_t size, Use use, Help help, const Call& call) {
  const auto one_piece = [&](const Piece& piece) {
    if (!piece.is_tensor) return call(at(piece.from, 0), piece.begin, piece.size);
    if (help == Help::kTouched) return touch_and_call(piece, use, call);
    const Held held(piece.from, piece.size, use, help);
    if (help == Help::kHeldOrCopied && !held.is_certain()) return through_buffer(piece, use, call);
    return touch_and_call(piece, use, call);
  };
  // A piece of a tensor is short at the end of the file, on a full disk, because its memory has
  // left, or because the buffer is smaller: what follows tells.
  return in_pieces(memory, size, one_piece, [](const Piece& piece, size_t moved) {
    return moved == 0 || (!piece.is_tensor && moved < piece.size);
  });
}

/// Whether a transfer with a pipe or socket that waits for all goes on after a part of it. One that
/// was ended by memory that had left could have gone on without waiting; a signal, a timeout or a
/// descriptor that does not block end one that cannot.
class GoesOn {
 public:
  GoesOn(int descriptor, Use use) : descriptor_(descriptor), use_(use) {}

  bool after(const Piece& piece, size_t moved) {
    const bool was_trial = is_trial_;
    is_trial_ = false;
    if (moved == piece.size) return true;
    if (moved == 0 || !piece.is_tensor) return false;
    if (was_trial) return true;
    const int type = socket_type(descriptor_);
    const int state = state_of(descriptor_);
    // An error is left for the program, and a message is never added to.
    if ((state & POLLERR) != 0 || (type != 0 && type != SOCK_STREAM)) return false;
    // A socket with room for more need not call itself ready, so the next piece tells.
    is_trial_ = use_ == Use::kTaken && type == SOCK_STREAM;
    return is_trial_ || (state & (use_ == Use::kTaken ? POLLOUT : POLLIN)) != 0;
  }

  /// Whether the next piece is to be sent without waiting.
  bool is_trial() const { return is_trial_; }

 private:
  int descriptor_;
  Use use_;
  bool is_trial_ = false;
};

/// With a pipe or socket: what may be in memory at once, or in such pieces all of it.
template <typename Call>
ssize_t with_stream(int descriptor, const void* memory, size_t size, Use use, Wait wait,
                    const Call& call) {
  GoesOn goes_on(descriptor, use);
  const auto try_to_send = [&](void* from, size_t, size_t count) {
    return real().send(descriptor, from, count, MSG_DONTWAIT | MSG_NOSIGNAL);
  };
  const auto one_piece = [&](const Piece& piece) {
    if (!piece.is_tensor) return call(at(piece.from, 0), piece.begin, piece.size);
    if (goes_on.is_trial()) return touch_and_call(piece, use, try_to_send);
    return touch_and_call(piece, use, call);
  };
  return in_pieces(memory, size, one_piece, [&](const Piece& piece, size_t moved) {
    return wait == Wait::kForSome || !goes_on.after(piece, moved);
  });
}

/// A whole message through a copy; `call` is given that and its size.
template <typename Call>
ssize_t with_message(const iovec* parts, size_t count, Use use, const Call& call) {
  size_t size = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!__builtin_add_overflow(size, parts[i].iov_len, &size)) continue;
    errno = EINVAL;
    return -1;
  }
  auto* const message = static_cast<char*>(malloc(size));
  if (message == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  size_t begin = 0;
  for (size_t i = 0; use == Use::kTaken && i < count; begin += parts[i++].iov_len)
    memcpy(message + begin, parts[i].iov_base, parts[i].iov_len);
  const ssize_t moved = call(message, size);
  // A message that was longer may be told with its whole length.
  size_t left = use == Use::kTaken || moved < 0 ? 0 : static_cast<size_t>(moved);
  for (size_t i = 0; left > 0 && i < count; begin += parts[i++].iov_len) {
    const size_t part = left < parts[i].iov_len ? left : parts[i].iov_len;
    memcpy(parts[i].iov_base, message + begin, part);
    left -= part;
  }
  const KeptErrno kept;
  free(message);
  return moved;
}

/// A transfer with whatever the descriptor is. `call` is given memory, where in all of it that
/// begins, and a size.
template <typename Call>
ssize_t transfer(int descriptor, const void* memory, size_t size, Use use, Wait wait,
                 const Call& call) {
  const size_t at_once = tensor_bytes(memory, size);
  const Help help = at_once > 0 ? help_for(descriptor) : Help::kNone;
  if (help == Help::kNone) return call(at(memory, 0), 0, size);
  if (help != Help::kTouched) return with_file(memory, size, use, help, call);
  if (at_once == size || !keeps_messages(descriptor))
    return with_stream(descriptor, memory, size, use, wait, call);
  const iovec whole{at(memory, 0), size};
  return with_message(&whole, 1, use,
                      [&](void* message, size_t bytes) { return call(message, 0, bytes); });
}

template <typename Call>
ssize_t transfer(int descriptor, const void* memory, size_t size, Use use, const Call& call) {
  const Wait wait = use == Use::kTaken ? Wait::kForAll : Wait::kForSome;
  return transfer(descriptor, memory, size, use, wait, call);
}

/// A write; what may be a hole in a file becomes one (holes.h).
ssize_t write_to(int descriptor, const void* memory, size_t size) {
  const size_t before_hole = size - hole_at_end(memory, size);
  size_t begin = 0;
  if (before_hole < size) {
    const ssize_t moved = before_hole > 0 ? real().write(descriptor, memory, before_hole) : 0;
    if (moved < static_cast<ssize_t>(before_hole)) return moved;
    if (make_hole(descriptor, size - before_hole)) return static_cast<ssize_t>(size);
    begin = before_hole;
  }
  const ssize_t moved = transfer(
      descriptor, at(memory, begin), size - begin, Use::kTaken,
      [&](void* piece, size_t, size_t count) { return real().write(descriptor, piece, count); });
  return begin == 0 ? moved : static_cast<ssize_t>(begin) + (moved < 0 ? 0 : moved);
}

/// What is only looked at comes again with the next call, and does not add up.
Wait wait_of_receiving(int flags) {
  const bool adds_up = (flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE)) == 0;
  return adds_up && (flags & MSG_WAITALL) != 0 ? Wait::kForAll : Wait::kForSome;
}

/// Touches the tensors among `parts` and copies the parts to `passed`, as many as may be in memory
/// at once, the last one perhaps shortened. Returns how many.
unsigned gather(const iovec* parts, size_t count, Use use, iovec* passed) {
  unsigned kept = 0;
  size_t tensors = 0;
  for (size_t i = 0; i < count && kept < kParts; ++i) {
    iovec part = parts[i];
    const size_t tensor = tensor_bytes(part.iov_base, part.iov_len);
    if (tensors > 0 && tensors + tensor > registered_hooks()->bytes_at_once) break;
    tensors += tensor;
    touch(part.iov_base, tensor, use);
    const bool is_cut = tensor > 0 && tensor < part.iov_len;
    if (is_cut) part.iov_len = tensor;
    passed[kept++] = part;
    if (is_cut) break;
  }
  return kept;
}

/// A vector transfer: with a file part by part, else what may be in memory at once in one call.
template <typename OnePart, typename AllParts>
ssize_t transfer_parts(int descriptor, const iovec* parts, int count, Use use,
                       const OnePart& one_part, const AllParts& all_parts) {
  const bool has_any = count > 0 && has_tensor(parts, static_cast<size_t>(count));
  const Help help = has_any ? help_for(descriptor) : Help::kNone;
  if (help == Help::kNone) return all_parts(parts, count);
  if (help == Help::kTouched && keeps_messages(descriptor)) {
    return with_message(parts, static_cast<size_t>(count), use, [&](void* message, size_t size) {
      const iovec whole{message, size};
      return all_parts(&whole, 1);
    });
  }
  if (help == Help::kTouched) {
    iovec passed[kParts];
    unsigned kept = 0;
    return until_it_stays([&] { kept = gather(parts, static_cast<size_t>(count), use, passed); },
                          [&] { return all_parts(passed, static_cast<int>(kept)); });
  }
  ssize_t done = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t moved =
        with_file(parts[i].iov_base, parts[i].iov_len, use, help,
                  [&](void* piece, size_t begin, size_t size) {
                    return one_part(piece, size, done + static_cast<ssize_t>(begin));
                  });
    if (moved < 0) return done > 0 ? done : moved;
    done += moved;
    if (static_cast<size_t>(moved) < parts[i].iov_len) break;
  }
  return done;
}

bool has_hole(const iovec* parts, int count) {
  for (int i = 0; i < count; ++i)
    if (hole_at_end(parts[i].iov_base, parts[i].iov_len) > 0) return true;
  return false;
}

/// Part by part.
ssize_t write_parts(int descriptor, const iovec* parts, int count) {
  ssize_t done = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t moved = write_to(descriptor, parts[i].iov_base, parts[i].iov_len);
    if (moved < 0) return done > 0 ? done : moved;
    done += moved;
    if (static_cast<size_t>(moved) < parts[i].iov_len) break;
  }
  return done;
}

template <typename Call>
ssize_t transfer_message(int socket, const msghdr* message, Use use, const Call& call) {
  if (message == nullptr || !has_tensor(message->msg_iov, message->msg_iovlen) ||
      registered_hooks()->kernel_serves_faults != 0)
    return call(message);
  msghdr copy = *message;
  if (keeps_messages(socket)) {
    return with_message(message->msg_iov, message->msg_iovlen, use, [&](void* bytes, size_t size) {
      iovec whole{bytes, size};
      copy.msg_iov = &whole;
      copy.msg_iovlen = 1;
      return call(&copy);
    });
  }
  iovec passed[kParts];
  copy.msg_iov = passed;
  return until_it_stays(
      [&] { copy.msg_iovlen = gather(message->msg_iov, message->msg_iovlen, use, passed); },
      [&] { return call(&copy); });
}

/// process_vm_readv and process_vm_writev, which are told apart by what becomes of `local`.
ssize_t transfer_between_processes(decltype(&::process_vm_readv) call, Use local_use, pid_t process,
                                   const iovec* local, unsigned long count, const iovec* remote,
                                   unsigned long remote_count, unsigned long flags) {
  const bool is_own = process == getpid();
  const bool has_any = has_tensor(local, count) || (is_own && has_tensor(remote, remote_count));
  if (!has_any || registered_hooks()->kernel_serves_faults != 0)
    return call(process, local, count, remote, remote_count, flags);
  const Use remote_use = local_use == Use::kFilled ? Use::kTaken : Use::kFilled;
  iovec near[kParts];
  iovec far[kParts];
  unsigned long near_count = 0;
  unsigned long far_count = remote_count;
  return until_it_stays(
      [&] {
        near_count = gather(local, count, local_use, near);
        if (is_own) far_count = gather(remote, remote_count, remote_use, far);
      },
      [&] { return call(process, near, near_count, is_own ? far : remote, far_count, flags); });
}

/// Whether what a call is to read is there already, as a part of a record (hooks.h).
bool is_part_of_record(int file, void* memory, size_t size, off_t from) {
  if (size < kLeastOfRecord) return false;
  const SpillwayHooks* hooks = registered_hooks();
  const KeptErrno kept;
  return hooks != nullptr && hooks->read_part != nullptr &&
         hooks->read_part(file, memory, size, from) != 0;
}

bool is_part_of_record(FILE* file, void* memory, size_t size) {
  if (size < kLeastOfRecord) return false;
  const SpillwayHooks* hooks = registered_hooks();
  if (hooks == nullptr || hooks->read_part == nullptr) return false;
  const KeptErrno kept;
  const off_t from = ftello(file);
  return from >= 0 && hooks->read_part(fileno(file), memory, size, from) != 0 &&
         fseeko(file, from + static_cast<off_t>(size), SEEK_SET) == 0;
}

/// For preadv2 and pwritev2, to which -1 means where the file is.
off_t place_after(off_t start, ssize_t done) { return start == -1 ? start : start + done; }

/// `call` is given memory, the size of an item and how many there are. `locks`: blocks of other
/// threads must not come in between the pieces.
template <typename Call>
size_t transfer_items(const void* memory, size_t item, size_t items, FILE* file, bool locks,
                      Use use, const Call& call) {
  const bool has_any = item != 0 && tensor_bytes(memory, item * items) > 0;
  const Help help = has_any ? help_for(fileno_unlocked(file)) : Help::kNone;
  if (help == Help::kNone) return call(at(memory, 0), item, items);
  bool is_over = false;
  const auto one_piece = [&](void* piece, size_t, size_t size) {
    if (is_over) return ssize_t{0};
    errno = 0;
    const size_t moved = call(piece, 1, size);
    // Not the file's fault; what did not come is asked for again.
    const bool has_left = moved < size && ferror_unlocked(file) != 0 && errno == EFAULT;
    if (has_left) clearerr_unlocked(file);
    is_over = moved < size && !has_left;
    return has_left && moved == 0 ? ssize_t{-1} : static_cast<ssize_t>(moved);
  };
  if (locks) flockfile(file);
  const ssize_t done = with_file(memory, item * items, use, help, one_piece);
  if (locks) funlockfile(file);
  return done < 0 ? 0 : static_cast<size_t>(done) / item;
}

}  // namespace
}  // namespace spillway::preload

using namespace spillway::preload;  // NOLINT: what follows stands for functions of the C library.

extern "C" {

SPILLWAY_VISIBLE ssize_t read(int file, void* memory, size_t size) {
  note_input(file);
  if (is_part_of_record(file, memory, size, -1)) return static_cast<ssize_t>(size);
  const auto call = real().read;
  return transfer(file, memory, size, Use::kFilled,
                  [&](void* piece, size_t, size_t count) { return call(file, piece, count); });
}

SPILLWAY_VISIBLE ssize_t write(int file, const void* memory, size_t size) {
  return noted(write_to(file, memory, size));
}

SPILLWAY_VISIBLE ssize_t pread(int file, void* memory, size_t size, off_t from) {
  if (from >= 0 && is_part_of_record(file, memory, size, from)) return static_cast<ssize_t>(size);
  const auto call = real().pread;
  return transfer(file, memory, size, Use::kFilled, [&](void* piece, size_t begin, size_t count) {
    return call(file, piece, count, from + static_cast<off_t>(begin));
  });
}

SPILLWAY_VISIBLE ssize_t pread64(int file, void* memory, size_t size, off64_t from) {
  return pread(file, memory, size, from);
}

SPILLWAY_VISIBLE ssize_t pwrite(int file, const void* memory, size_t size, off_t to) {
  const auto call = real().pwrite;
  return noted(
      transfer(file, memory, size, Use::kTaken, [&](void* piece, size_t begin, size_t count) {
        return call(file, piece, count, to + static_cast<off_t>(begin));
      }));
}

SPILLWAY_VISIBLE ssize_t pwrite64(int file, const void* memory, size_t size, off64_t to) {
  return pwrite(file, memory, size, to);
}

SPILLWAY_VISIBLE ssize_t readv(int file, const iovec* parts, int count) {
  note_input(file);
  return transfer_parts(
      file, parts, count, Use::kFilled,
      [&](void* part, size_t size, ssize_t) { return real().read(file, part, size); },
      [&](const iovec* passed, int left) { return real().readv(file, passed, left); });
}

SPILLWAY_VISIBLE ssize_t writev(int file, const iovec* parts, int count) {
  if (has_hole(parts, count)) return noted(write_parts(file, parts, count));
  return noted(transfer_parts(
      file, parts, count, Use::kTaken,
      [&](void* part, size_t size, ssize_t) { return real().write(file, part, size); },
      [&](const iovec* passed, int left) { return real().writev(file, passed, left); }));
}

SPILLWAY_VISIBLE ssize_t preadv(int file, const iovec* parts, int count, off_t from) {
  return transfer_parts(
      file, parts, count, Use::kFilled,
      [&](void* part, size_t size, ssize_t done) {
        return real().pread(file, part, size, from + done);
      },
      [&](const iovec* passed, int left) { return real().preadv(file, passed, left, from); });
}

SPILLWAY_VISIBLE ssize_t preadv64(int file, const iovec* parts, int count, off64_t from) {
  return preadv(file, parts, count, from);
}

SPILLWAY_VISIBLE ssize_t preadv2(int file, const iovec* parts, int count, off_t from, int flags) {
  return transfer_parts(
      file, parts, count, Use::kFilled,
      [&](void* part, size_t size, ssize_t done) {
        const iovec one{part, size};
        return real().preadv2(file, &one, 1, place_after(from, done), flags);
      },
      [&](const iovec* passed, int left) {
        return real().preadv2(file, passed, left, from, flags);
      });
}

SPILLWAY_VISIBLE ssize_t preadv64v2(int file, const iovec* parts, int count, off64_t from,
                                    int flags) {
  return preadv2(file, parts, count, from, flags);
}

SPILLWAY_VISIBLE ssize_t pwritev(int file, const iovec* parts, int count, off_t to) {
  return noted(transfer_parts(
      file, parts, count, Use::kTaken,
      [&](void* part, size_t size, ssize_t done) {
        return real().pwrite(file, part, size, to + done);
      },
      [&](const iovec* passed, int left) { return real().pwritev(file, passed, left, to); }));
}

SPILLWAY_VISIBLE ssize_t pwritev64(int file, const iovec* parts, int count, off64_t to) {
  return pwritev(file, parts, count, to);
}

SPILLWAY_VISIBLE ssize_t pwritev2(int file, const iovec* parts, int count, off_t to, int flags) {
  return transfer_parts(
      file, parts, count, Use::kTaken,
      [&](void* part, size_t size, ssize_t done) {
        const iovec one{part, size};
        return real().pwritev2(file, &one, 1, place_after(to, done), flags);
      },
      [&](const iovec* passed, int left) {
        return real().pwritev2(file, passed, left, to, flags);
      });
}

SPILLWAY_VISIBLE ssize_t pwritev64v2(int file, const iovec* parts, int count, off64_t to,
                                     int flags) {
  return pwritev2(file, parts, count, to, flags);
}

SPILLWAY_VISIBLE ssize_t recv(int file, void* memory, size_t size, int flags) {
  const auto call = real().recv;
  return transfer(
      file, memory, size, Use::kFilled, wait_of_receiving(flags),
      [&](void* piece, size_t, size_t count) { return call(file, piece, count, flags); });
}

SPILLWAY_VISIBLE ssize_t send(int file, const void* memory, size_t size, int flags) {
  const auto call = real().send;
  return transfer(file, memory, size, Use::kTaken, [&](void* piece, size_t, size_t count) {
    return call(file, piece, count, flags);
  });
}

SPILLWAY_VISIBLE ssize_t recvfrom(int file, void* memory, size_t size, int flags,
                                  __SOCKADDR_ARG from, socklen_t* length) {
  return transfer(file, memory, size, Use::kFilled, wait_of_receiving(flags),
                  [&](void* piece, size_t, size_t count) {
                    return real().recvfrom(file, piece, count, flags, from, length);
                  });
}

SPILLWAY_VISIBLE ssize_t sendto(int file, const void* memory, size_t size, int flags,
                                __CONST_SOCKADDR_ARG to, socklen_t length) {
  return transfer(file, memory, size, Use::kTaken, [&](void* piece, size_t, size_t count) {
    return real().sendto(file, piece, count, flags, to, length);
  });
}

SPILLWAY_VISIBLE ssize_t recvmsg(int file, msghdr* message, int flags) {
  return transfer_message(file, message, Use::kFilled, [&](const msghdr* passed) {
    auto* const filled = const_cast<msghdr*>(passed);
    const ssize_t moved = real().recvmsg(file, filled, flags);
    if (filled != message && moved >= 0) {
      message->msg_namelen = filled->msg_namelen;
      message->msg_controllen = filled->msg_controllen;
      message->msg_flags = filled->msg_flags;
    }
    return moved;
  });
}

SPILLWAY_VISIBLE ssize_t sendmsg(int file, const msghdr* message, int flags) {
  return transfer_message(file, message, Use::kTaken, [&](const msghdr* passed) {
    return real().sendmsg(file, passed, flags);
  });
}

SPILLWAY_VISIBLE ssize_t process_vm_readv(pid_t process, const iovec* local, unsigned long count,
                                          const iovec* remote, unsigned long remote_count,
                                          unsigned long flags) {
  return transfer_between_processes(real().process_vm_readv, Use::kFilled, process, local, count,
                                    remote, remote_count, flags);
}

SPILLWAY_VISIBLE ssize_t process_vm_writev(pid_t process, const iovec* local, unsigned long count,
                                           const iovec* remote, unsigned long remote_count,
                                           unsigned long flags) {
  return transfer_between_processes(real().process_vm_writev, Use::kTaken, process, local, count,
                                    remote, remote_count, flags);
}

SPILLWAY_VISIBLE size_t fread(void* memory, size_t item, size_t items, FILE* file) {
  if (file == stdin) note_input(0);
  if (is_part_of_record(file, memory, item * items)) return items;
  const auto call = real().fread;
  return transfer_items(
      memory, item, items, file, /*locks=*/true, Use::kFilled,
      [&](void* piece, size_t size, size_t count) { return call(piece, size, count, file); });
}

SPILLWAY_VISIBLE size_t fread_unlocked(void* memory, size_t item, size_t items, FILE* file) {
  if (is_part_of_record(file, memory, item * items)) return items;
  const auto call = real().fread_unlocked;
  return transfer_items(
      memory, item, items, file, /*locks=*/false, Use::kFilled,
      [&](void* piece, size_t size, size_t count) { return call(piece, size, count, file); });
}

SPILLWAY_VISIBLE size_t fwrite(const void* memory, size_t item, size_t items, FILE* file) {
  const auto call = real().fwrite;
  const size_t done = transfer_items(
      memory, item, items, file, /*locks=*/true, Use::kTaken,
      [&](void* piece, size_t size, size_t count) { return call(piece, size, count, file); });
  if (done < items) note_error(errno);
  return done;
}

SPILLWAY_VISIBLE size_t fwrite_unlocked(const void* memory, size_t item, size_t items, FILE* file) {
  const auto call = real().fwrite_unlocked;
  const size_t done = transfer_items(
      memory, item, items, file, /*locks=*/false, Use::kTaken,
      [&](void* piece, size_t size, size_t count) { return call(piece, size, count, file); });
  if (done < items) note_error(errno);
  return done;
}

}  // extern "C"
