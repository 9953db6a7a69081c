// What do copies between host and device cost, and the calls that order them? Lines of JSON.
#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <memory>

#include "loads.cuh"

namespace {

bool tiny = false;

/// Host memory of each kind that a pager might copy from.
class HostMemory {
 public:
  enum class Kind { kAllocated, kRegistered, kRegisteredHuge, kPageable };

  HostMemory(Kind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
    if (kind == Kind::kAllocated) {
      pinned_seconds =
          seconds_of([&] { GPU_CHECK(cudaHostAlloc(&at_, bytes, cudaHostAllocDefault)); });
      touched_seconds = seconds_of([&] { std::memset(at_, 1, bytes); });
      return;
    }
    // Aligned to 2 MiB, as an arena is.
    all_ = ::mmap(nullptr, bytes + 2 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
    if (all_ == MAP_FAILED) std::exit(1);
    at_ = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(all_) + 2 * kMiB - 1) /
                                  (2 * kMiB) * 2 * kMiB);
    ::madvise(at_, bytes, kind == Kind::kRegisteredHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    touched_seconds = seconds_of([&] { std::memset(at_, 1, bytes); });
    if (kind != Kind::kPageable)
      pinned_seconds =
          seconds_of([&] { GPU_CHECK(cudaHostRegister(at_, bytes, cudaHostRegisterDefault)); });
  }
  ~HostMemory() { free(); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  /// Seconds of giving the pinning up.
  double free() {
    if (at_ == nullptr) return 0;
    const double seconds = seconds_of([&] {
      if (kind_ == Kind::kAllocated) GPU_CHECK(cudaFreeHost(at_));
      if (kind_ == Kind::kRegistered || kind_ == Kind::kRegisteredHuge)
        GPU_CHECK(cudaHostUnregister(at_));
    });
    if (all_ != nullptr) ::munmap(all_, bytes_ + 2 * kMiB);
    at_ = nullptr;
    return seconds;
  }
  char* at(std::size_t offset = 0) const { return static_cast<char*>(at_) + offset; }

  double pinned_seconds = 0, touched_seconds = 0;

 private:
  Kind kind_;
  std::size_t bytes_;
  void* all_ = nullptr;
  void* at_ = nullptr;
};

using Kind = HostMemory::Kind;
const std::vector<std::pair<const char*, Kind>> kKinds = {
    {"allocated", Kind::kAllocated},
    {"registered", Kind::kRegistered},
    {"registered, huge pages", Kind::kRegisteredHuge},
    {"pageable", Kind::kPageable}};

/// As a pool grows.
void pinning_in_pieces(const char* pages, int advice) {
  HostMemory memory(Kind::kPageable, 512 * kMiB);
  ::madvise(memory.at(), 512 * kMiB, MADV_DONTNEED);
  ::madvise(memory.at(), 512 * kMiB, advice);
  std::memset(memory.at(), 1, 512 * kMiB);
  for (const std::size_t mib : {2, 32, 128}) {
    Samples pin, unpin;
    for (std::size_t at = 0; at + mib * kMiB <= 512 * kMiB; at += mib * kMiB)
      pin.time(
          [&] { GPU_CHECK(cudaHostRegister(memory.at(at), mib * kMiB, cudaHostRegisterDefault)); });
    for (std::size_t at = 0; at + mib * kMiB <= 512 * kMiB; at += mib * kMiB)
      unpin.time([&] { GPU_CHECK(cudaHostUnregister(memory.at(at))); });
    Line("pinning in pieces")
        .with("pages", pages)
        .with("mib", mib)
        .with("pin", pin)
        .with("unpin", unpin);
  }
}

void pinning() {
  const std::size_t bytes = (tiny ? 1 : 4) * kGiB;
  for (const auto& [name, kind] : kKinds) {
    if (kind == Kind::kPageable) continue;
    HostMemory memory(kind, bytes);
    const double gib = bytes / double(kGiB);
    const double touched = memory.touched_seconds, pinned = memory.pinned_seconds;
    Line("pinning")
        .with("kind", name)
        .with("gib", gib)
        .with("pin_ms_per_gib", pinned / gib * 1e3)
        .with("touch_ms_per_gib", touched / gib * 1e3)
        .with("unpin_ms_per_gib", memory.free() / gib * 1e3);
  }
  pinning_in_pieces("small", MADV_NOHUGEPAGE);
  pinning_in_pieces("huge", MADV_HUGEPAGE);
}

/// One direction or both, at once from two streams.
class Copier {
 public:
  Copier(const HostMemory& host, char* device, std::size_t window)
      : host_(host), device_(device), window_(window) {}

  void in(std::size_t bytes) {
    copy(device_, host_.at(), bytes, in_at_, cudaMemcpyHostToDevice, into);
  }
  void out(std::size_t bytes) {
    copy(host_.at(window_), device_ + window_, bytes, out_at_, cudaMemcpyDeviceToHost, from);
  }
  void wait() const {
    GPU_CHECK(cudaStreamSynchronize(into));
    GPU_CHECK(cudaStreamSynchronize(from));
  }

  cudaStream_t into = new_stream(), from = new_stream();

 private:
  // Goes through the window, so that no copy finds its bytes in a cache.
  void copy(char* to, char* source, std::size_t bytes, std::size_t& at, cudaMemcpyKind kind,
            cudaStream_t stream) {
    if (at + bytes > window_) at = 0;
    GPU_CHECK(cudaMemcpyAsync(to + at, source + at, bytes, kind, stream));
    at += bytes;
  }
  const HostMemory& host_;
  char* device_;
  std::size_t window_;
  std::size_t in_at_ = 0, out_at_ = 0;
};

struct Rates {
  double in = 0, out = 0;  ///< GB/s.
};

Rates measure(Copier& copier, std::size_t bytes, bool goes_in, bool goes_out, std::size_t count) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (goes_in) copier.in(bytes);
    if (goes_out) copier.out(bytes);
  }
  copier.wait();
  Stopwatch in, out;
  in.start(copier.into);
  out.start(copier.from);
  for (std::size_t i = 0; i < count; ++i) {
    if (goes_in) copier.in(bytes);
    if (goes_out) copier.out(bytes);
  }
  in.end(copier.into);
  out.end(copier.from);
  const double total = static_cast<double>(bytes) * count;
  return {goes_in ? total / in.seconds() * 1e-9 : 0, goes_out ? total / out.seconds() * 1e-9 : 0};
}

void rates() {
  const std::size_t window = (tiny ? 64 : 512) * kMiB;
  char* device = nullptr;
  GPU_CHECK(cudaMalloc(&device, 2 * window));
  for (const auto& [name, kind] : kKinds) {
    const HostMemory host(kind, 2 * window);
    Copier copier(host, device, window);
    for (std::size_t bytes = 64 * 1024; bytes <= window / 2; bytes *= 4) {
      const std::size_t count = std::clamp<std::size_t>(2 * window / bytes, 4, 1024);
      const Rates in = measure(copier, bytes, true, false, count);
      const Rates out = measure(copier, bytes, false, true, count);
      // Copies from and to pageable memory wait, so that two of them never run at once.
      const Rates both =
          kind == Kind::kPageable ? Rates{} : measure(copier, bytes, true, true, count);
      Line("copies")
          .with("memory", name)
          .with("kib", bytes / 1024)
          .with("in", in.in)
          .with("out", out.out)
          .with("in_of_both", both.in)
          .with("out_of_both", both.out);
    }
  }
  GPU_CHECK(cudaFree(device));
}

/// Many small copies: by a call each, and in batches.
void batches() {
  const HostMemory host(Kind::kAllocated, 256 * kMiB);
  char* device = nullptr;
  GPU_CHECK(cudaMalloc(&device, 256 * kMiB));
  const cudaStream_t stream = new_stream();
  for (const std::size_t kib : {16, 64, 256, 2048}) {
    const std::size_t bytes = kib * 1024, count = 64;
    std::vector<void*> to(count);
    std::vector<const void*> from(count);
    const std::vector<std::size_t> sizes(count, bytes);
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = device + i * 2 * bytes;
      from[i] = host.at(i * 2 * bytes);
    }
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
    const auto run = [&](const char* how, const std::function<void()>& copy) {
      Samples host_time, device_time;
      Stopwatch watch;
      for (int turn = 0; turn < 30; ++turn) {
        watch.start(stream);
        host_time.time(copy);
        device_time.add(watch.stop(stream));
      }
      Line("many copies")
          .with("how", how)
          .with("kib", kib)
          .with("copies", count)
          .with("host", host_time)
          .with("device", device_time)
          .with("gb_per_second", bytes * count / device_time.at(0.5) * 1e-9);
    };
    run("one by one", [&] {
      for (std::size_t i = 0; i < count; ++i)
        GPU_CHECK(cudaMemcpyAsync(to[i], from[i], bytes, cudaMemcpyHostToDevice, stream));
    });
    run("batch", [&] {
      GPU_CHECK(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, &attributes,
                                     &first, 1, stream));
    });
  }
  GPU_CHECK(cudaFree(device));
}

/// A pager in its steady state: a block of `together` chunks leaves for each that comes in.
class Paging {
 public:
  struct Shape {
    std::size_t chunk, together;
    bool remaps;
  };
  Paging(Shape shape, const HostMemory& host, std::size_t resident_bytes)
      : shape_(shape),
        bytes_(shape.chunk * shape.together),
        host_(host),
        chunks_(shape.chunk, resident_bytes / bytes_ * shape.together),
        range_(shape.chunk, 2 * chunks_.count()) {
    const std::size_t blocks = chunks_.count() / shape.together;
    for (std::size_t i = 0; i < blocks; ++i) {
      map(i, i);
      resident_.push_back({i, i, {}});
      out_.push_back(blocks + i);
    }
    for (auto& event : events_) GPU_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  ~Paging() {
    GPU_CHECK(cudaDeviceSynchronize());
    for (const auto& blocks : {resident_, leaving_})
      for (const Block& block : blocks) unmap(block.place);
    for (const auto event : events_) cudaEventDestroy(event);
  }

  void turn() {
    Block victim = resident_.front();
    resident_.pop_front();
    GPU_CHECK(cudaMemcpyAsync(host_at(victim.place), device_at(victim.place), bytes_,
                              cudaMemcpyDeviceToHost, from_));
    victim.left = events_[turns_++ % kAhead];
    GPU_CHECK(cudaEventRecord(victim.left, from_));
    leaving_.push_back(victim);
    if (leaving_.size() == kAhead) bring_in();
  }

  double bytes() const { return static_cast<double>(turns_) * bytes_; }
  double mapping_seconds = 0, waiting_seconds = 0;

 private:
  struct Block {
    std::size_t place, chunks;  ///< Numbers of the block's addresses and of its chunks.
    cudaEvent_t left;
  };
  static constexpr std::size_t kAhead = 8;  ///< Blocks that leave at once.

  char* host_at(std::size_t place) const { return host_.at(place * bytes_); }
  char* device_at(std::size_t place) const { return range_.pointer(place * shape_.together); }

  void map(std::size_t place, std::size_t chunks) const {
    const std::size_t together = shape_.together;
    for (std::size_t i = 0; i < together; ++i)
      range_.map(place * together + i, chunks_[chunks * together + i]);
    range_.allow(place * together, together);
  }
  void unmap(std::size_t place) const { range_.unmap(place * shape_.together, shape_.together); }

  void bring_in() {
    Block block = leaving_.front();
    leaving_.pop_front();
    // The driver unmaps also what a copy still reads.
    waiting_seconds += seconds_of([&] { GPU_CHECK(cudaEventSynchronize(block.left)); });
    if (shape_.remaps) {
      out_.push_back(block.place);
      mapping_seconds += seconds_of([&] {
        unmap(block.place);
        map(out_.front(), block.chunks);
      });
      block.place = out_.front();
      out_.pop_front();
    }
    GPU_CHECK(cudaMemcpyAsync(device_at(block.place), host_at(block.place), bytes_,
                              cudaMemcpyHostToDevice, into_));
    // The event is free again. The next time that this block leaves it has to have arrived.
    GPU_CHECK(cudaEventRecord(block.left, into_));
    GPU_CHECK(cudaStreamWaitEvent(from_, block.left, 0));
    resident_.push_back(block);
  }

  Shape shape_;
  std::size_t bytes_;
  const HostMemory& host_;
  Chunks chunks_;
  Range range_;
  std::deque<Block> resident_, leaving_;
  std::deque<std::size_t> out_;
  cudaEvent_t events_[kAhead] = {};
  cudaStream_t into_ = new_stream(), from_ = new_stream();
  std::size_t turns_ = 0;
};

void paging_of(Paging::Shape shape, const HostMemory& host, std::size_t resident,
               Products* products) {
  Paging pager(shape, host, resident);
  for (int i = 0; i < 32; ++i) pager.turn();
  pager.mapping_seconds = pager.waiting_seconds = 0;
  const double before = pager.bytes(), start = now_seconds();
  Beside thread([&] { pager.turn(); });
  double product = 0;
  if (products != nullptr) product = products->seconds(tiny ? 20 : 150);
  if (products == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(tiny ? 30 : 200));
  const long turns = thread.stop();
  const double seconds = now_seconds() - start;
  Line("paging")
      .with("maps", shape.remaps)
      .with("chunk_mib", shape.chunk / kMiB)
      .with("together", shape.together)
      .with("computes", products != nullptr)
      .with("gb_per_second_each_way", (pager.bytes() - before) / seconds * 1e-9)
      .with("mapping_us", pager.mapping_seconds / turns * 1e6)
      .with("waiting_us", pager.waiting_seconds / turns * 1e6)
      .with("product_us", product * 1e6);
}

void paging() {
  const std::size_t resident = (tiny ? 512 : 2048) * kMiB;
  const HostMemory host(Kind::kAllocated, 2 * resident);
  Products products(new_stream());
  const std::vector<std::pair<std::size_t, std::size_t>> shapes = {
      {2, 1}, {4, 1}, {8, 1}, {16, 1}, {32, 1}, {64, 1}, {2, 8}, {8, 4}, {16, 4}, {32, 2}};
  for (const auto& [mib, together] : shapes) {
    for (Products* computed : {static_cast<Products*>(nullptr), &products}) {
      for (const bool remaps : {false, true})
        paging_of({mib * kMiB, together, remaps}, host, resident, computed);
    }
  }
}

void host_function(void* at) { *static_cast<double*>(at) = now_seconds(); }

/// Calls that order work, on a stream that is empty when they come.
void small_calls() {
  const cudaStream_t stream = new_stream(), other = new_stream();
  cudaEvent_t event{}, sleeping{};
  GPU_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  GPU_CHECK(cudaEventCreateWithFlags(&sleeping, cudaEventDisableTiming | cudaEventBlockingSync));
  Samples launch, record, query, wait, synchronize, sleep, enqueue, until_called, whole;
  for (int turn = 0; turn < 2000; ++turn) {
    launch.time([&] { nothing<<<1, 1, 0, stream>>>(); });
    record.time([&] { GPU_CHECK(cudaEventRecord(event, stream)); });
    wait.time([&] { GPU_CHECK(cudaStreamWaitEvent(other, event, 0)); });
    GPU_CHECK(cudaStreamSynchronize(other));
    query.time([&] { GPU_CHECK(cudaEventQuery(event)); });
    const auto until = [&](cudaEvent_t end, Samples& samples) {
      samples.time([&] {
        nothing<<<1, 1, 0, stream>>>();
        GPU_CHECK(cudaEventRecord(end, stream));
        GPU_CHECK(cudaEventSynchronize(end));
      });
    };
    until(event, synchronize);
    until(sleeping, sleep);
    double called = 0;
    const double start = now_seconds();
    enqueue.time([&] { GPU_CHECK(cudaLaunchHostFunc(stream, host_function, &called)); });
    GPU_CHECK(cudaStreamSynchronize(stream));
    until_called.add(called - start);
    whole.add(now_seconds() - start);
  }
  Line("small calls")
      .with("launch", launch)
      .with("event_record", record)
      .with("stream_wait_event", wait)
      .with("event_query", query)
      .with("launch_to_synchronize", synchronize)
      .with("launch_to_blocking_synchronize", sleep)
      .with("host_function_enqueue", enqueue)
      .with("host_function_called", until_called)
      .with("host_function_to_synchronize", whole);
}

/// A stream that waits until the host writes a word: prefetches could be queued long before their
/// room is free.
void waits_for_values() {
  const cudaStream_t stream = new_stream();
  volatile unsigned* word = nullptr;
  GPU_CHECK(cudaHostAlloc(const_cast<unsigned**>(&word), sizeof(unsigned), cudaHostAllocMapped));
  *word = 0;
  Samples enqueue, resumes;
  for (unsigned turn = 1; turn <= 1000; ++turn) {
    enqueue.time([&] {
      GPU_CHECK(driver().wait_for_value(stream,
                                        reinterpret_cast<CUdeviceptr>(const_cast<unsigned*>(word)),
                                        turn, CU_STREAM_WAIT_VALUE_EQ));
    });
    resumes.time([&] {
      *word = turn;
      while (cudaStreamQuery(stream) == cudaErrorNotReady) {
      }
    });
  }
  Line("waits for values").with("enqueue", enqueue).with("resumes", resumes);
}

void resolution_of_events() {
  const cudaStream_t stream = new_stream();
  std::vector<cudaEvent_t> events(2000);
  for (auto& event : events) {
    GPU_CHECK(cudaEventCreate(&event));
    GPU_CHECK(cudaEventRecord(event, stream));
  }
  GPU_CHECK(cudaStreamSynchronize(stream));
  std::vector<double> since;
  for (const auto event : events) {
    float milliseconds = 0;
    GPU_CHECK(cudaEventElapsedTime(&milliseconds, events[0], event));
    since.push_back(milliseconds * 1e6);
  }
  double least = 1e9;
  Samples between;
  for (std::size_t i = 1; i < since.size(); ++i) {
    const double step = since[i] - since[i - 1];
    between.add(step * 1e-9);
    if (step > 0.25) least = std::min(least, step);
  }
  Line("resolution of events").with("least_ns", least).with("between", between);
}

/// What the context, cuBLAS and this program's kernels take of the card.
void memory_of_libraries() {
  std::size_t before = 0, after = 0, total = 0;
  GPU_CHECK(cudaMemGetInfo(&before, &total));
  Line line("memory of libraries");
  line.with("total_mib", total / double(kMiB)).with("context_mib", (total - before) / double(kMiB));
  Products products(new_stream(), 1024);
  GPU_CHECK(cudaMemGetInfo(&after, &total));
  line.with("cublas_mib", (before - after) / double(kMiB));
}

}  // namespace

int main(int argc, char** argv) {
  tiny = argc > 1 && std::string(argv[1]) == "--tiny";
  GPU_CHECK(cudaFree(nullptr));
  memory_of_libraries();
  small_calls();
  waits_for_values();
  resolution_of_events();
  pinning();
  rates();
  batches();
  paging();
  return 0;
}
