// Cases about access to tensor memory that passes by the operators: pointers, threads, system
// calls, child processes.

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <numeric>
#include <queue>
#include <span>
#include <system_error>
#include <thread>

#include "case.h"
#include "run.h"

namespace awkward {
namespace {

constexpr std::size_t kBlock = 4096;

std::span<float> floats_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

/// Throws with the name of the call and the reason unless `result` is `expected`.
void expect(const char* call, ssize_t result, std::size_t expected) {
  if (result < 0) {
    throw std::system_error(errno, std::generic_category(), call);
  }
  if (static_cast<std::size_t>(result) != expected) {
    throw std::runtime_error(std::string(call) + " moved " + std::to_string(result) + " of " +
                             std::to_string(expected) + " bytes");
  }
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {
    if (descriptor < 0) {
      throw std::system_error(errno, std::generic_category(), "open");
    }
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe");
    }
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close(read_end);
    close(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int read_end;
  int write_end;
};

/// First address in `floats` that direct I/O accepts, and the bytes from there in whole blocks.
std::span<char> aligned_part(std::span<float> floats) {
  const auto start = reinterpret_cast<std::uintptr_t>(floats.data());
  const std::uintptr_t aligned = (start + kBlock - 1) / kBlock * kBlock;
  const std::size_t left = floats.size_bytes() - (aligned - start);
  return {reinterpret_cast<char*>(aligned), left / kBlock * kBlock};
}

/// What a child process did: what it wrote into the pipe, and how it ended.
struct ChildResult {
  std::string output;
  std::string end;
};

/// Forks without exec, runs `body` in the child with the descriptor of a pipe, ends the child with
/// _exit, and waits for it.
ChildResult in_child(const std::function<void(int)>& body) {
  const Pipe channel;
  const pid_t child = fork();
  if (child < 0) {
    throw std::system_error(errno, std::generic_category(), "fork");
  }
  if (child == 0) {
    alarm(120);  // A child that hangs is a result too, and must not outlive the test.
    body(channel.write_end);
    _exit(7);
  }
  ChildResult result;
  int status = 0;
  if (waitpid(child, &status, 0) != child) {
    throw std::system_error(errno, std::generic_category(), "waitpid");
  }
  pollfd ready{channel.read_end, POLLIN, 0};
  std::array<char, 256> buffer{};
  while (poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0) {
    const ssize_t got = read(channel.read_end, buffer.data(), buffer.size());
    expect("read from the child", std::min<ssize_t>(got, 1), 1);
    result.output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  result.end = WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status))
                                 : "signal " + std::to_string(WTERMSIG(status));
  return result;
}

/// Writes the hash of each tensor's memory to `descriptor`, without an operator.
void write_hashes(int descriptor, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    char line[32];
    const int length =
        std::snprintf(line, sizeof line, "%016llx ",
                      static_cast<unsigned long long>(hash_of(tensor.data_ptr(), tensor.nbytes())));
    if (write(descriptor, line, static_cast<std::size_t>(length)) != length) {
      _exit(9);
    }
  }
}

/// A bounded queue between two threads.
class TensorQueue {
 public:
  void push(at::Tensor tensor) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.size() < 3; });
    waiting_.push(std::move(tensor));
    changed_.notify_all();
  }
  at::Tensor pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !waiting_.empty(); });
    at::Tensor tensor = std::move(waiting_.front());
    waiting_.pop();
    changed_.notify_all();
    return tensor;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<at::Tensor> waiting_;
};

}  // namespace

SPILLWAY_AWKWARD_CASE(kept_pointer, "raw pointers kept over steps, read and written between ops") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  const std::span<float> weight = floats_of(model->layers[1]->weight);
  const at::Tensor table = here::zeros({1024, 1024});
  const std::span<float> raw = floats_of(table);
  for (int step = 0; step < 4; ++step) {
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
    run.bytes("weight", weight.data(), weight.size_bytes());
    for (std::size_t i = static_cast<std::size_t>(step); i < weight.size(); i += 1001) {
      weight[i] *= 0.5F;
    }
    for (std::size_t i = 0; i < raw.size(); i += 3) {
      raw[i] += static_cast<float>(i % 17);
    }
    run.number("table", table.sum());
    table.mul_(0.5);
    run.number("same address", model->layers[1]->weight.data_ptr<float>() == weight.data() ? 1 : 0);
  }
  note_module(run, *model);
  run.bytes("raw", raw.data(), raw.size_bytes());
}

SPILLWAY_AWKWARD_CASE(accessor_loops, "element loops through accessors and item") {
  Ballast ballast(16, 4);
  const at::Tensor matrix = ballast.tensors()[0].view({1024, 1024});
  auto rows = matrix.accessor<float, 2>();
  for (const int step : run.steps(4)) {
    ballast.sweep();
    double sum = 0;
    for (std::int64_t i = 0; i < rows.size(0); ++i) {
      for (std::int64_t j = 0; j < rows.size(1); j += 5) {
        rows[i][j] = rows[j][i] * 0.5F + 1.0F;
        sum += rows[i][j];
      }
    }
    run.number("sum", sum);
    const at::Tensor turned = ballast.tensors()[3].view({1024, 1024}).t();
    const auto strided = turned.packed_accessor64<float, 2>();
    double trace = 0;
    for (std::int64_t i = 0; i < strided.size(0); ++i) {
      trace += strided[i][(i * 7) % 1024];
    }
    run.number("trace", trace);
    run.number("item", ballast.tensors()[7 + step][step].item<float>());
  }
  run.tensors("tensor", ballast.tensors());
}

SPILLWAY_AWKWARD_CASE(library_calls, "memcpy, memmove, sort and other library calls over tensors") {
  Ballast ballast(16, 4);
  const auto& t = ballast.tensors();
  for ([[maybe_unused]] const int step : run.steps(3)) {
    ballast.sweep();
    const std::span<float> a = floats_of(t[1]);
    const std::span<float> b = floats_of(t[8]);
    std::memcpy(a.data(), b.data() + 1000, a.size_bytes() - 4000);
    std::memmove(b.data() + 777, b.data(), b.size_bytes() / 2);
    std::memset(a.data() + 5000, 0, 40'000);
    ballast.sweep();
    std::sort(a.begin(), a.end());
    std::stable_sort(b.begin(), b.begin() + 200'000, std::greater<>());
    run.number("sum", std::accumulate(a.begin(), a.end(), 0.0));
    run.number("compared", std::memcmp(t[4].data_ptr(), t[5].data_ptr(), t[4].nbytes()) < 0);
    const std::vector<float> copy(b.begin(), b.end());
    run.bytes("copy", copy.data(), copy.size() * sizeof(float));
  }
  run.tensors("tensor", t);
}

/// Vector calls on more bytes than a small budget holds, and on many parts.
void transfer_many_parts(int file, Ballast& ballast) {
  const auto& t = ballast.tensors();
  std::vector<iovec> whole;
  std::size_t size = 0;
  for (std::size_t i = 4; i < 10; ++i) {
    whole.push_back({t[i].data_ptr(), t[i].nbytes()});
    size += t[i].nbytes();
  }
  ballast.sweep();
  expect("writev", writev(file, whole.data(), static_cast<int>(whole.size())), size);
  std::reverse(whole.begin(), whole.end());
  ballast.sweep();
  expect("lseek", lseek(file, 0, SEEK_SET), 0);
  expect("readv", readv(file, whole.data(), static_cast<int>(whole.size())), size);

  std::vector<iovec> many;
  constexpr std::size_t kMany = 100;
  constexpr std::size_t kPart = 10'000;
  for (std::size_t i = 0; i < kMany; ++i)
    many.push_back({static_cast<char*>(t[i % 8].data_ptr()) + i * kPart, kPart});
  ballast.sweep();
  expect("pwritev", pwritev(file, many.data(), kMany, 4'000), kMany * kPart);
  std::reverse(many.begin(), many.end());
  ballast.sweep();
  expect("preadv", preadv(file, many.data(), kMany, 4'000), kMany * kPart);
}

SPILLWAY_AWKWARD_CASE(system_calls, "read, write and their vector forms on tensor memory") {
  Ballast ballast(16, 4);
  const auto& t = ballast.tensors();
  const File file(open(run.file("data").c_str(), O_RDWR | O_CREAT, 0600));
  for (const int step : run.steps(3)) {
    ballast.sweep();
    const auto index = static_cast<std::size_t>(step);
    expect("write", write(file.get(), t[index].data_ptr(), t[index].nbytes()), t[index].nbytes());
    ballast.sweep();
    expect("pread", pread(file.get(), t[index + 5].data_ptr(), t[index + 5].nbytes(), 0),
           t[index + 5].nbytes());
    std::array<iovec, 3> parts{};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i] = {t[i + 9].data_ptr<float>() + 12'345, 300'000};
    }
    ballast.sweep();
    expect("pwritev", pwritev(file.get(), parts.data(), 3, 1 << 20), 900'000);
    ballast.sweep();
    std::reverse(parts.begin(), parts.end());
    expect("preadv", preadv(file.get(), parts.data(), 3, 1'000'000), 900'000);
    expect("lseek", lseek(file.get(), 0, SEEK_SET), 0);
    transfer_many_parts(file.get(), ballast);
    expect("lseek", lseek(file.get(), 0, SEEK_SET), 0);
    run.tensor("read", t[index + 5]);
  }
  run.tensors("tensor", t);
}

SPILLWAY_AWKWARD_CASE(direct_io, "O_DIRECT reads and writes on tensor memory") {
  Ballast ballast(12, 4);
  std::vector<at::Tensor> slots;
  std::vector<std::span<char>> parts;  // Equal in size wherever the tensors lie.
  for (int i = 0; i < 4; ++i) {
    slots.push_back(here::zeros({1 << 20}));
    parts.push_back(aligned_part(floats_of(slots.back())).first(3 << 20));
  }
  const std::size_t size = parts[0].size();
  const std::string path = run.file("direct");
  int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
  if (descriptor < 0 && errno == EINVAL) {
    // A file system without O_DIRECT; the same calls with buffers still say something.
    descriptor = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  }
  const File file(descriptor);
  for (const int step : run.steps(3)) {
    std::memcpy(parts[0].data(), ballast.tensors()[static_cast<std::size_t>(step)].data_ptr(),
                size);
    ballast.sweep();
    expect("pwrite", pwrite(file.get(), parts[0].data(), size, 0), size);
    ballast.sweep();
    expect("pread", pread(file.get(), parts[1].data(), size, 0), size);
    ballast.sweep();
    expect("pread", pread(file.get(), parts[2].data(), size / 2, 1 << 20), size / 2);
    std::array<iovec, 2> halves{iovec{parts[3].data(), size / 2},
                                iovec{parts[3].data() + size / 2, size / 2}};
    expect("preadv", preadv(file.get(), halves.data(), 2, 0), size);
    for (const std::span<char>& part : parts) {
      run.bytes("part", part.data(), part.size());
    }
  }
  run.tensors("ballast", ballast.tensors());
}

SPILLWAY_AWKWARD_CASE(stdio_and_streams, "fwrite, fread and file streams on tensor memory") {
  Ballast ballast(16, 4);
  const auto& t = ballast.tensors();
  for (const int step : run.steps(3)) {
    const std::string path = run.file("stdio" + std::to_string(step));
    const auto index = static_cast<std::size_t>(step);
    const std::size_t size = t[index].nbytes();
    ballast.sweep();
    std::FILE* file = std::fopen(path.c_str(), "w+");
    expect("fwrite", static_cast<ssize_t>(std::fwrite(t[index].data_ptr(), 1, size, file)), size);
    std::rewind(file);
    ballast.sweep();
    expect("fread", static_cast<ssize_t>(std::fread(t[index + 5].data_ptr(), 1, size, file)), size);
    std::fclose(file);
    ballast.sweep();
    std::ofstream out(path, std::ios::binary);
    out.write(static_cast<const char*>(t[index + 8].data_ptr()),
              static_cast<std::streamsize>(size));
    out.close();
    run.text("ofstream", out ? "good" : "failed");
    ballast.sweep();
    std::ifstream in(path, std::ios::binary);
    in.read(static_cast<char*>(t[index + 3].data_ptr()), static_cast<std::streamsize>(size));
    run.text("ifstream", in ? "good" : "failed");
    run.tensor("read", t[index + 3]);
  }
  run.tensors("tensor", t);
}

SPILLWAY_AWKWARD_CASE(pipes_and_sockets, "pipes, sockets and process_vm_readv") {
  Ballast ballast(16, 4);
  const auto& t = ballast.tensors();
  constexpr std::size_t kSlice = 32 * 1024;
  for ([[maybe_unused]] const int step : run.steps(3)) {
    const Pipe channel;
    std::array<int, 2> ends{};
    expect("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    const File left(ends[0]);
    const File right(ends[1]);
    for (std::size_t i = 0; i < 3; ++i) {
      ballast.sweep();
      char* const from = static_cast<char*>(t[i].data_ptr()) + 2'500'000;
      char* const to = static_cast<char*>(t[i + 7].data_ptr()) + 1'000'000;
      expect("write", write(channel.write_end, from, kSlice), kSlice);
      expect("read", read(channel.read_end, to, kSlice), kSlice);
      expect("send", send(left.get(), from, kSlice, 0), kSlice);
      expect("recv", recv(right.get(), to + 2 * kSlice, kSlice, MSG_WAITALL), kSlice);
      std::array<iovec, 2> out{iovec{from, kSlice / 4}, iovec{from + (1 << 20), kSlice / 4}};
      std::array<iovec, 2> in{iovec{to + 5 * kSlice, kSlice / 4},
                              iovec{to + (3 << 19), kSlice / 4}};
      msghdr message{};
      message.msg_iov = out.data();
      message.msg_iovlen = out.size();
      ballast.sweep();
      expect("sendmsg", sendmsg(left.get(), &message, 0), kSlice / 2);
      message.msg_iov = in.data();
      ballast.sweep();
      expect("recvmsg", recvmsg(right.get(), &message, MSG_WAITALL), kSlice / 2);
      ballast.sweep();
      expect("sendto", sendto(right.get(), from, kSlice, 0, nullptr, 0), kSlice);
      ballast.sweep();
      expect("recvfrom", recvfrom(left.get(), to, kSlice, MSG_WAITALL, nullptr, nullptr), kSlice);
      iovec local{to + 3 * kSlice, 1 << 20};
      iovec remote{from - (2 << 20), 1 << 20};
      const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
      if (got < 0 && (errno == EPERM || errno == ENOSYS)) {
        std::memcpy(local.iov_base, remote.iov_base, 1 << 20);  // Forbidden here, by a container.
      } else {
        expect("process_vm_readv", got, 1 << 20);
      }
    }
  }
  run.tensors("tensor", t);
}

SPILLWAY_AWKWARD_CASE(locked_memory, "mlock and madvise on tensor memory") {
  Ballast ballast(16, 4);
  const auto& t = ballast.tensors();
  for (const int step : run.steps(3)) {
    const std::span<char> part = aligned_part(floats_of(t[static_cast<std::size_t>(step) * 2]));
    ballast.sweep();
    // Limits may refuse it; the tensors must be right either way.
    const bool locked = mlock(part.data(), part.size()) == 0;
    ballast.sweep();
    run.tensor("locked", t[static_cast<std::size_t>(step) * 2]);
    if (locked) {
      munlock(part.data(), part.size());
    }
    madvise(part.data(), part.size(), MADV_WILLNEED);
    madvise(part.data(), part.size(), MADV_SEQUENTIAL);
    ballast.sweep();
  }
  run.tensors("tensor", t);
}

SPILLWAY_AWKWARD_CASE(foreign_thread, "a thread that reads and writes tensors during training") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  const at::Tensor shared = here::zeros({1 << 20});
  const at::Tensor constant = normal_mib(6);
  // Every second group of 16 floats belongs to the thread, the others to the operators.
  const std::span<float> all = floats_of(shared);
  const at::Tensor theirs = shared.view({-1, 2, 16}).select(1, 1);
  const std::span<const float> fixed = floats_of(constant);
  std::vector<double> sums;
  std::thread foreign([&sums, all, fixed] {
    for (int pass = 0; pass < 12; ++pass) {
      double sum = 0;
      for (std::size_t group = 0; group < all.size(); group += 32) {
        for (std::size_t i = group; i < group + 16; ++i) {
          all[i] = all[i] * 0.5F + static_cast<float>(i % 31);
        }
      }
      for (std::size_t i = 0; i < fixed.size(); i += 7) {
        sum += fixed[i];
      }
      sums.push_back(sum);
    }
  });
  for (int step = 0; step < 3; ++step) {
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
    theirs.add_(step).mul_(0.75);
  }
  foreign.join();
  for (const double sum : sums) {
    run.number("sum", sum);
  }
  run.tensor("shared", shared);
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(two_training_threads, "two threads that train models of their own") {
  std::array<Mlp, 2> models{make_mlp(3), make_mlp(3)};
  std::array<std::vector<at::Tensor>, 2> losses;
  const at::Tensor shared_input = mlp_batch();
  const auto train = [&](std::size_t which) {
    at::Generator generator = new_generator(run.seed() + which);
    torch::optim::Adam optimizer(models[which]->parameters(), 1e-3);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor target = here::randn({kMlpBatch, kMlpWidth}, generator);
      losses[which].push_back(train_step(models[which], optimizer, shared_input, target));
    }
  };
  std::thread first(train, 0);
  std::thread second(train, 1);
  first.join();
  second.join();
  for (std::size_t which = 0; which < 2; ++which) {
    for (const at::Tensor& loss : losses[which]) {
      run.number("loss", loss);
    }
    note_module(run, *models[which]);
  }
}

SPILLWAY_AWKWARD_CASE(producer_consumer, "tensors made by one thread, used and freed by another") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  TensorQueue full;
  TensorQueue used;
  constexpr int kBatches = 6;
  std::thread producer([&] {
    at::Generator generator = new_generator(run.seed());
    for (int i = 0; i < kBatches; ++i) {
      full.push(here::randn({2, kMlpBatch, kMlpWidth}, generator).mul_(0.5).add_(0.1));
    }
  });
  std::thread destroyer([&] {
    for (int i = 0; i < kBatches; ++i) {
      used.pop().reset();
    }
  });
  for (int i = 0; i < kBatches; ++i) {
    at::Tensor batch = full.pop();
    run.number("loss", train_step(model, optimizer, batch[0], batch[1]));
    run.tensor("batch", batch);
    used.push(std::move(batch));
  }
  producer.join();
  destroyer.join();
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(interop_threads, "work on the inter-op and intra-op pools of LibTorch") {
  Ballast ballast(16, 4);
  const auto& t = ballast.tensors();
  for (const int step : run.steps(3)) {
    std::mutex mutex;
    std::condition_variable changed;
    int running = 4;
    for (std::size_t task = 0; task < 4; ++task) {
      at::launch([&, task] {
        t[task * 3].mul_(0.5).add_(t[task * 3 + 1]);
        const std::lock_guard lock(mutex);
        --running;
        changed.notify_all();
      });
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return running == 0; });
    ballast.sweep();
    run.number("sum", t[static_cast<std::size_t>(step)].sum());
  }
  run.tensors("tensor", t);
}

SPILLWAY_AWKWARD_CASE(parallel_for, "kernels of the program on the threads of LibTorch") {
  Ballast ballast(16, 4);
  const auto& t = ballast.tensors();
  for ([[maybe_unused]] const int step : run.steps(4)) {
    for (std::size_t i = 0; i + 1 < t.size(); ++i) {
      const std::span<float> to = floats_of(t[i]);
      const std::span<const float> from = floats_of(t[i + 1]);
      at::parallel_for(
          0, static_cast<std::int64_t>(to.size()), 1000, [&](std::int64_t begin, std::int64_t end) {
            for (auto j = static_cast<std::size_t>(begin); j < static_cast<std::size_t>(end); ++j) {
              to[j] = to[j] * 0.5F + from[from.size() - 1 - j] * 0.25F;
            }
          });
    }
    ballast.sweep();
    const std::span<const float> last = floats_of(t[3]);
    run.number("reduced", at::parallel_reduce(
                              0, static_cast<std::int64_t>(last.size()), 1 << 18, 0.0,
                              [&](std::int64_t begin, std::int64_t end, double sum) {
                                return std::accumulate(last.begin() + begin, last.begin() + end,
                                                       sum);
                              },
                              std::plus<>()));
  }
  run.tensors("tensor", t);
}

SPILLWAY_AWKWARD_CASE(thread_counts, "thread counts that change in mid-run") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  for (const int count : {1, 2, 3, 1, 4}) {
    at::set_num_threads(count);
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
    set_openmp_threads(count % 2 + 1);
    run.number("norm", torch::nn::utils::clip_grad_norm_(model->parameters(), 0.1));
  }
  at::set_num_threads(run.threads());
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(fork_child_reads, "a forked child that reads resident and spilled tensors") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  const Ballast untouched(8, 4);  // Long out under a small budget when the child comes.
  for (int step = 0; step < 3; ++step) {
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
    const ChildResult child = in_child([&](int descriptor) {
      write_hashes(descriptor, model->parameters());
      write_hashes(descriptor, untouched.tensors());
      _exit(0);
    });
    run.text("child", child.output);
    run.text("child end", child.end);
  }
  note_module(run, *model);
  run.tensors("untouched", untouched.tensors());
}

SPILLWAY_AWKWARD_CASE(fork_child_computes,
                      "a forked child that runs operators and writes tensors") {
  Ballast ballast(16, 4);
  for ([[maybe_unused]] const int step : run.steps(3)) {
    ballast.sweep();
    const ChildResult child = in_child([&](int descriptor) {
      set_openmp_threads(1);  // The threads of OpenMP did not come along.
      ballast.sweep();
      const at::Tensor fresh = here::full({1 << 20}, 3.0).add_(ballast.tensors()[2]);
      ballast.tensors()[4].copy_(fresh);
      floats_of(ballast.tensors()[9])[5] = 4.0F;
      write_hashes(descriptor, ballast.tensors());
      write_hashes(descriptor, {fresh});
      _exit(0);
    });
    run.text("child", child.output);
    run.text("child end", child.end);
    run.tensors("parent", ballast.tensors());
  }
}

SPILLWAY_AWKWARD_CASE(fork_while_training, "forks from one thread while another one trains") {
  Mlp model = make_mlp();
  const at::Tensor constant = normal_mib(8);
  std::vector<at::Tensor> losses;
  std::vector<at::Tensor> batches;
  for (int i = 0; i < 4; ++i) {
    batches.push_back(mlp_batch());
  }
  std::thread trainer([&] {
    torch::optim::Adam optimizer(model->parameters(), 1e-3);
    for (std::size_t step = 0; step < 4; ++step) {
      losses.push_back(train_step(model, optimizer, batches[step], batches[(step + 1) % 4]));
    }
  });
  for (int round = 0; round < 4; ++round) {
    const ChildResult child = in_child([&](int descriptor) {
      write_hashes(descriptor, {constant});
      _exit(0);
    });
    run.text("child", child.output + child.end);
  }
  trainer.join();
  for (const at::Tensor& loss : losses) {
    run.number("loss", loss);
  }
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(fork_exec, "other programs started in mid-run") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  for (int step = 0; step < 3; ++step) {
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
    const ChildResult child = in_child([](int) {
      execl("/bin/true", "true", nullptr);
      _exit(8);
    });
    run.text("true", child.end);
    run.number("system", std::system("exit 3"));
    std::FILE* const echo = popen("echo from a shell", "r");
    std::array<char, 64> line{};
    run.text("popen", std::fgets(line.data(), line.size(), echo) == nullptr ? "nothing" : "a line");
    run.number("closed", pclose(echo));
  }
  note_module(run, *model);
}

namespace {

sigjmp_buf after_fault;
volatile std::sig_atomic_t own_faults = 0;
char* own_page = nullptr;
struct sigaction earlier_action;

/// Serves faults on the page of the program and hands every other one on, as a good handler does.
void on_fault(int number, siginfo_t* info, void* context) {
  const auto* const address = static_cast<const char*>(info->si_addr);
  if (address >= own_page && address < own_page + kBlock) {
    own_faults = own_faults + 1;
    siglongjmp(after_fault, 1);
  }
  if ((earlier_action.sa_flags & SA_SIGINFO) != 0) {
    earlier_action.sa_sigaction(number, info, context);
    return;
  }
  signal(number, SIG_DFL);
}

/// A function of its own, because the jump may spoil local variables.
[[gnu::noinline]] void fault_on_own_page() {
  if (sigsetjmp(after_fault, 1) == 0) {
    *const_cast<volatile char*>(own_page) = 1;
  }
}

/// The same from further down the stack, below what the handler has left there.
[[gnu::noinline]] void fault_deeper() {
  std::array<volatile char, 65536> below{};
  fault_on_own_page();
  below.back() = 1;
}

}  // namespace

SPILLWAY_AWKWARD_CASE(own_fault_handler,
                      "a program with a handler for its own segment violations") {
  Ballast ballast(16, 4);
  Mlp model = make_mlp();
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  void* const page = mmap(nullptr, kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "mmap");
  }
  own_page = static_cast<char*>(page);
  struct sigaction action = {};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &earlier_action);
  for (const int step : run.steps(3)) {
    ballast.sweep();
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
    fault_on_own_page();
    fault_on_own_page();
    fault_deeper();
    const std::span<float> raw = floats_of(ballast.tensors()[static_cast<std::size_t>(step)]);
    for (std::size_t i = 0; i < raw.size(); i += 100) {
      raw[i] += 1.0F;
    }
  }
  sigaction(SIGSEGV, &earlier_action, nullptr);
  munmap(page, kBlock);
  run.number("own faults", static_cast<double>(own_faults));
  note_module(run, *model);
  run.tensors("tensor", ballast.tensors());
}

}  // namespace awkward
