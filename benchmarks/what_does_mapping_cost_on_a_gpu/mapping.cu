// What do the verbs of mapping device memory cost, alone and beside running kernels? Lines of JSON.
#include <memory>

#include "loads.cuh"

namespace {

const std::vector<std::size_t> kChunkMiB = {2, 4, 8, 16, 32, 64, 128};
bool tiny = false;

/// About `bytes` in chunks, not too few and not too many.
std::size_t count_for(std::size_t chunk, std::size_t bytes = 4 * kGiB) {
  return std::clamp<std::size_t>((tiny ? bytes / 16 : bytes) / chunk, 16, 512);
}

void tell_facts() {
  cudaDeviceProp found{};
  GPU_CHECK(cudaGetDeviceProperties(&found, 0));
  int version = 0, can_map = 0;
  GPU_CHECK(cudaDriverGetVersion(&version));
  GPU_CHECK(
      driver().attribute(&can_map, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  const CUmemAllocationProp wanted = properties();
  std::size_t least = 0, recommended = 0, free = 0, total = 0;
  GPU_CHECK(driver().granularity(&least, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  GPU_CHECK(driver().granularity(&recommended, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  GPU_CHECK(cudaMemGetInfo(&free, &total));
  Line("facts")
      .with("device", std::string(found.name))
      .with("cuda_of_driver", version)
      .with("processors", found.multiProcessorCount)
      .with("copy_engines", found.asyncEngineCount)
      .with("can_map", can_map)
      .with("granularity_kib", least / 1024.0)
      .with("recommended_kib", recommended / 1024.0)
      .with("total_mib", total / double(kMiB))
      .with("free_mib", free / double(kMiB));
}

void verbs_of_one_chunk(std::size_t chunk) {
  const std::size_t count = count_for(chunk);
  Samples create, map, allow, unmap, release;
  for (int round = 0; round < 3; ++round) {
    std::vector<CUmemGenericAllocationHandle> handles(count);
    const CUmemAllocationProp wanted = properties();
    for (auto& handle : handles)
      create.time([&] { GPU_CHECK(driver().create(&handle, chunk, &wanted, 0)); });
    {
      const Range range(chunk, count);
      for (int turn = 0; turn < 3; ++turn) {
        for (std::size_t i = 0; i < count; ++i) map.time([&] { range.map(i, handles[i]); });
        for (std::size_t i = 0; i < count; ++i) allow.time([&] { range.allow(i); });
        for (std::size_t i = 0; i < count; ++i) unmap.time([&] { range.unmap(i); });
      }
    }
    for (const auto handle : handles) release.time([&] { GPU_CHECK(driver().release(handle)); });
  }
  Line("verbs of one chunk")
      .with("chunk_mib", chunk / kMiB)
      .with("create", create)
      .with("map", map)
      .with("allow", allow)
      .with("unmap", unmap)
      .with("release", release);
}

/// One access call and one unmap call over many chunks: is the cost per chunk or per call?
void verbs_of_many_chunks(std::size_t chunk, std::size_t together) {
  const std::size_t count = std::max(count_for(chunk) / together, std::size_t{4}) * together;
  const Chunks chunks(chunk, std::min(count, count_for(chunk)));
  Samples map, allow, unmap;
  const Range range(chunk, chunks.count());
  for (int turn = 0; turn < 5; ++turn) {
    for (std::size_t i = 0; i + together <= chunks.count(); i += together) {
      map.time([&] {
        for (std::size_t k = 0; k < together; ++k) range.map(i + k, chunks[i + k]);
      });
      allow.time([&] { range.allow(i, together); });
      unmap.time([&] { range.unmap(i, together); });
    }
  }
  Line("verbs of many chunks")
      .with("chunk_mib", chunk / kMiB)
      .with("together", together)
      .with("map", map)
      .with("allow", allow)
      .with("unmap", unmap);
}

void reservations() {
  for (const std::size_t bytes : {2 * kMiB, kGiB, 64 * kGiB, 1024 * kGiB, 16 * 1024 * kGiB}) {
    Samples reserve, give_back;
    for (int turn = 0; turn < 50; ++turn) {
      CUdeviceptr at = 0;
      const double start = now_seconds();
      if (driver().reserve(&at, bytes, 0, 0, 0) != CUDA_SUCCESS) break;
      reserve.add(now_seconds() - start);
      give_back.time([&] { GPU_CHECK(driver().give_back(at, bytes)); });
    }
    Line line("reserve addresses");
    line.with("gib", bytes / double(kGiB)).with("works", reserve.count() > 0);
    if (reserve.count() > 0) line.with("reserve", reserve).with("give_back", give_back);
  }
}

/// What programs without own mapping call, for comparison.
void plain_allocations() {
  const cudaStream_t stream = new_stream();
  for (const std::size_t mib : {2, 32, 256}) {
    Samples allocate, free, later, free_later;
    for (int turn = 0; turn < 30; ++turn) {
      void* at = nullptr;
      allocate.time([&] { GPU_CHECK(cudaMalloc(&at, mib * kMiB)); });
      free.time([&] { GPU_CHECK(cudaFree(at)); });
      later.time([&] { GPU_CHECK(cudaMallocAsync(&at, mib * kMiB, stream)); });
      free_later.time([&] { GPU_CHECK(cudaFreeAsync(at, stream)); });
      GPU_CHECK(cudaStreamSynchronize(stream));
    }
    Line("plain allocations")
        .with("mib", mib)
        .with("cudaMalloc", allocate)
        .with("cudaFree", free)
        .with("cudaMallocAsync", later)
        .with("cudaFreeAsync", free_later);
  }
}

/// Maps and unmaps chunks of an own range in turn; `pace` seconds apart if it is not 0.
class Remapper {
 public:
  explicit Remapper(std::size_t chunk, double pace = 0)
      : chunks_(chunk, 4), range_(chunk, 4), pace_(pace), next_(now_seconds()) {}

  void turn() {
    while (pace_ > 0 && now_seconds() < next_) std::this_thread::yield();
    next_ = std::max(next_ + pace_, now_seconds() - pace_);
    const std::size_t place = turns_++ % chunks_.count();
    map.time([&] { range_.map(place, chunks_[place]); });
    allow.time([&] { range_.allow(place); });
    unmap.time([&] { range_.unmap(place); });
  }

  Samples map, allow, unmap;

 private:
  Chunks chunks_;
  Range range_;
  double pace_;
  double next_;
  std::size_t turns_ = 0;
};

void many_threads(std::size_t chunk, int threads) {
  std::vector<std::unique_ptr<Remapper>> remappers;
  for (int i = 0; i < threads; ++i) remappers.push_back(std::make_unique<Remapper>(chunk));
  std::vector<std::unique_ptr<Beside>> running;
  const double start = now_seconds();
  for (auto& remapper : remappers)
    running.push_back(std::make_unique<Beside>([&] { remapper->turn(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  long turns = 0;
  for (auto& thread : running) turns += thread->stop();
  Line("threads that map")
      .with("chunk_mib", chunk / kMiB)
      .with("threads", threads)
      .with("turns_per_second", turns / (now_seconds() - start))
      .with("map", remappers[0]->map)
      .with("allow", remappers[0]->allow)
      .with("unmap", remappers[0]->unmap);
}

/// The kernel `watch` on all processors, from construction to `stop`.
class Watched {
 public:
  Watched(const Range* words, int blocks) : stream_(new_stream()), blocks_(blocks) {
    GPU_CHECK(cudaHostAlloc(&ends_, sizeof(int), cudaHostAllocMapped));
    *ends_ = 0;
    GPU_CHECK(cudaMallocAsync(&gaps_, sizeof(Gaps) * blocks, stream_));
    clock_.start(stream_);
    const auto* from =
        words == nullptr ? nullptr : reinterpret_cast<const unsigned*>(words->pointer());
    watch<<<blocks, 32, 0, stream_>>>(ends_, kMostCycles, from,
                                      words == nullptr ? 0 : words->bytes() / 4,
                                      from == nullptr ? 1 << 16 : 1 << 10, gaps_);
    GPU_CHECK(cudaGetLastError());
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  ~Watched() {
    stop();
    cudaFreeHost(ends_);
    cudaStreamDestroy(stream_);
  }
  bool runs() const { return cudaStreamQuery(stream_) == cudaErrorNotReady; }
  void stop() {
    if (gaps_ == nullptr) return;
    *ends_ = 1;
    seconds = clock_.stop(stream_);
    std::vector<Gaps> all(blocks_);
    GPU_CHECK(cudaMemcpy(all.data(), gaps_, sizeof(Gaps) * blocks_, cudaMemcpyDeviceToHost));
    GPU_CHECK(cudaFree(gaps_));
    gaps_ = nullptr;
    for (const Gaps& one : all) {
      const double of_cycle = seconds / static_cast<double>(all[0].cycles);
      turns += static_cast<double>(one.turns) / blocks_;
      long_turns += static_cast<double>(one.long_turns) / blocks_;
      long_seconds += static_cast<double>(one.long_cycles) * of_cycle / blocks_;
      longest = std::max(longest, static_cast<double>(one.longest_cycles) * of_cycle);
    }
  }

  double seconds = 0, turns = 0, long_turns = 0, long_seconds = 0, longest = 0;  ///< Of a block.

 private:
  static constexpr long long kMostCycles = 800'000'000;
  cudaStream_t stream_;
  int blocks_;
  int* ends_ = nullptr;
  Gaps* gaps_ = nullptr;
  Stopwatch clock_;
};

/// Does a kernel of `blocks` blocks stall while chunks of another range are mapped and unmapped
/// without pause?
void stalls(const Range* words, std::size_t chunk, int blocks) {
  const auto pause = std::chrono::milliseconds(tiny ? 20 : 150);
  Remapper remapper(chunk);
  for (int round = 0; round < (tiny ? 1 : 3); ++round) {
    for (const bool maps : {false, true}) {
      Watched kernel(words, blocks);
      long turns = 0;
      if (maps) {
        Beside thread([&] { remapper.turn(); });
        std::this_thread::sleep_for(pause);
        turns = thread.stop();
      } else {
        std::this_thread::sleep_for(pause);
      }
      const bool ran = kernel.runs();
      kernel.stop();
      Line("stalls")
          .with("reads", words == nullptr ? "clock" : "memory")
          .with("blocks", blocks)
          .with("chunk_mib", chunk / kMiB)
          .with("maps", maps)
          .with("chunks_mapped", static_cast<double>(turns))
          .with("kernel_ran_on", ran)
          .with("read_ns", kernel.seconds / kernel.turns * 1e9)
          .with("long_reads", kernel.long_turns)
          .with("long_us", kernel.long_seconds * 1e6)
          .with("longest_us", kernel.longest * 1e6);
    }
  }
  Line("host beside a kernel")
      .with("reads", words == nullptr ? "clock" : "memory")
      .with("blocks", blocks)
      .with("chunk_mib", chunk / kMiB)
      .with("turns", static_cast<double>(remapper.map.count()))
      .with("map", remapper.map)
      .with("allow", remapper.allow)
      .with("unmap", remapper.unmap);
}

struct Rival {
  const char* name;
  std::size_t chunk;
  double pace;
};

/// Chunks at the rate of a fast bus, 50 GB/s, and without pause.
std::vector<Rival> rivals() {
  std::vector<Rival> all;
  for (const std::size_t mib : {2, 8, 32, 128}) {
    all.push_back({"at 50 GB/s", mib * kMiB, static_cast<double>(mib * kMiB) / 50e9});
    all.push_back({"without pause", mib * kMiB, 0});
  }
  return all;
}

/// Seconds that `work` returns, alone and beside each rival in turn: clocks and power drift.
void beside_rivals(const char* figure, const std::function<double()>& work) {
  for (const Rival& rival : rivals()) {
    Samples alone, beside;
    Remapper remapper(rival.chunk, rival.pace);
    work();
    for (int round = 0; round < (tiny ? 2 : 8); ++round) {
      alone.add(work());
      Beside thread([&] { remapper.turn(); });
      beside.add(work());
    }
    Line(figure)
        .with("maps", rival.name)
        .with("chunk_mib", rival.chunk / kMiB)
        .with("alone", alone)
        .with("beside", beside)
        .with("map", remapper.map)
        .with("allow", remapper.allow)
        .with("unmap", remapper.unmap);
  }
}

/// Many short kernels, launched one by one and as a graph: are launches or kernels held up?
void short_kernels() {
  const cudaStream_t stream = new_stream();
  void* words = nullptr;
  constexpr std::size_t kBytes = 8 * kMiB;
  constexpr int kCount = 1000;
  GPU_CHECK(cudaMalloc(&words, kBytes));
  cudaGraph_t graph{};
  cudaGraphExec_t ready{};
  shape();
  GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kCount; ++i) launch_read_all(words, kBytes, stream);
  GPU_CHECK(cudaStreamEndCapture(stream, &graph));
  GPU_CHECK(cudaGraphInstantiate(&ready, graph, 0));
  Stopwatch watch;
  const auto launched = [&](double share) {
    Samples launches;
    for (int i = 0; i < kCount; ++i) launches.time([&] { launch_read_all(words, kBytes, stream); });
    GPU_CHECK(cudaStreamSynchronize(stream));
    return launches.at(share);
  };
  beside_rivals("launch of a kernel", [&] { return launched(0.5); });
  beside_rivals("slowest of 1000 launches", [&] { return launched(1); });
  beside_rivals("short kernels", [&] {
    watch.start(stream);
    for (int i = 0; i < kCount; ++i) launch_read_all(words, kBytes, stream);
    return watch.stop(stream) / kCount;
  });
  beside_rivals("short kernels of a graph", [&] {
    watch.start(stream);
    GPU_CHECK(cudaGraphLaunch(ready, stream));
    return watch.stop(stream) / kCount;
  });
  GPU_CHECK(cudaFree(words));
}

void long_kernels() {
  const cudaStream_t stream = new_stream();
  Products products(stream);
  const int count = tiny ? 5 : 20;
  beside_rivals("matrix product", [&] { return products.seconds(count); });
  const Filled words(32 * kMiB, 128);
  beside_rivals("reading 4 GiB", [&] {
    Stopwatch watch;
    watch.start(stream);
    for (int i = 0; i < count; ++i)
      launch_read_all(words.range().pointer(), words.range().bytes(), stream);
    return watch.stop(stream) / count;
  });
}

/// Copies that one thread keeps in a queue of four, a direction at a time or both.
class Copies {
 public:
  Copies(const std::string& way, std::size_t bytes) : way_(way), bytes_(bytes) {
    GPU_CHECK(cudaHostAlloc(&host_, 2 * bytes, cudaHostAllocDefault));
    GPU_CHECK(cudaMalloc(&device_, 2 * bytes));
    int least = 0, greatest = 0;
    GPU_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    const int priority = way == "out, least priority" ? least : greatest;
    GPU_CHECK(cudaStreamCreateWithPriority(&into_, cudaStreamNonBlocking, greatest));
    GPU_CHECK(cudaStreamCreateWithPriority(&from_, cudaStreamNonBlocking, priority));
  }
  ~Copies() {
    GPU_CHECK(cudaDeviceSynchronize());
    GPU_CHECK(cudaFree(device_));
    GPU_CHECK(cudaFreeHost(host_));
  }
  void turn() {
    for (int i = 0; i < 4; ++i) {
      if (way_ == "in" || way_ == "both")
        GPU_CHECK(cudaMemcpyAsync(device_, host_, bytes_, cudaMemcpyHostToDevice, into_));
      if (way_ == "out, by a kernel") {
        copy_words<<<16, 512, 0, from_>>>(reinterpret_cast<uint4*>(host_ + bytes_),
                                          reinterpret_cast<const uint4*>(device_ + bytes_),
                                          bytes_ / sizeof(uint4));
      } else if (way_ != "in") {
        GPU_CHECK(cudaMemcpyAsync(host_ + bytes_, device_ + bytes_, bytes_, cudaMemcpyDeviceToHost,
                                  from_));
      }
    }
    GPU_CHECK(cudaStreamSynchronize(into_));
    GPU_CHECK(cudaStreamSynchronize(from_));
  }

 private:
  std::string way_;
  std::size_t bytes_;
  char *host_ = nullptr, *device_ = nullptr;
  cudaStream_t into_{}, from_{};
};

/// How long do the verbs take while the copy engines are busy? Chunks that lie together get access
/// by one call.
void verbs_beside_copies(const char* way, std::size_t copied, std::size_t together) {
  constexpr std::size_t kChunk = 2 * kMiB;
  Copies copies(way, copied);
  const Chunks chunks(kChunk, together);
  const Range range(kChunk, together);
  Samples map, allow, unmap;
  const double start = now_seconds();
  Beside thread([&] { copies.turn(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  while (now_seconds() - start < (tiny ? 0.02 : 0.1)) {
    map.time([&] {
      for (std::size_t i = 0; i < together; ++i) range.map(i, chunks[i]);
    });
    allow.time([&] { range.allow(0, together); });
    unmap.time([&] { range.unmap(0, together); });
  }
  const long turns = thread.stop();
  const double seconds = now_seconds() - start;
  Line("verbs beside copies")
      .with("copies", way)
      .with("copied_kib", copied / 1024)
      .with("gb_per_second", 4.0 * turns * copied / seconds * 1e-9)
      .with("together", together)
      .with("map", map)
      .with("allow", allow)
      .with("unmap", unmap);
}

void beside_copies() {
  for (const char* way : {"in", "out", "both", "out, least priority", "out, by a kernel"})
    for (const std::size_t mib : {1, 8, 32})
      for (const std::size_t together : {1, 8}) verbs_beside_copies(way, mib * kMiB, together);
}

/// May a chunk be at two addresses, so that it is mapped anew before it is unmapped?
void chunk_at_two_places() {
  const Chunks chunks(2 * kMiB, 1);
  const Range range(2 * kMiB, 2);
  range.map(0, chunks[0]);
  range.allow(0);
  GPU_CHECK(cudaMemset(range.pointer(0), 1, 2 * kMiB));
  range.map(1, chunks[0]);
  range.allow(1);
  range.unmap(0);
  unsigned char byte = 0;
  GPU_CHECK(cudaMemcpy(&byte, range.pointer(1), 1, cudaMemcpyDeviceToHost));
  range.unmap(1);
  Line("a chunk at two places").with("same_bytes", byte == 1);
}

/// Is memory slower that is mapped in small chunks, and right after it was mapped?
void speed_of_memory(const char* kind, std::size_t chunk, const char* at, std::size_t bytes,
                     bool is_new) {
  const cudaStream_t stream = new_stream();
  Stopwatch watch;
  watch.start(stream);
  launch_read_all(at, bytes, stream);
  const double first = watch.stop(stream);
  watch.start(stream);
  for (int i = 0; i < 5; ++i) launch_read_all(at, bytes, stream);
  const double later = watch.stop(stream) / 5;
  constexpr int kReads = 200;
  const double threads = shape().processors * 8 * 256;
  watch.start(stream);
  read_scattered<<<shape().processors * 8, 256, 0, stream>>>(
      reinterpret_cast<const uint4*>(at), bytes / sizeof(uint4), kReads, shape().sums);
  const double scattered = watch.stop(stream);
  Line("speed of memory")
      .with("kind", kind)
      .with("chunk_mib", chunk / kMiB)
      .with("is_new", is_new)
      .with("first_read_us", first * 1e6)
      .with("gb_per_second", bytes / later * 1e-9)
      .with("scattered_reads_per_ns", threads * kReads / scattered * 1e-9);
  cudaStreamDestroy(stream);
}

void speeds_of_memory() {
  const std::size_t bytes = (tiny ? 1 : 16) * kGiB;
  for (const std::size_t mib : kChunkMiB) {
    const Filled words(mib * kMiB, bytes / (mib * kMiB));
    for (const bool is_new : {true, false})
      speed_of_memory("chunks", mib * kMiB, words.range().pointer(), bytes, is_new);
  }
  char* plain = nullptr;
  GPU_CHECK(cudaMalloc(&plain, bytes));
  for (const bool is_new : {true, false}) speed_of_memory("cudaMalloc", 0, plain, bytes, is_new);
  GPU_CHECK(cudaFree(plain));
}

/// Takes the whole card in chunks, and asks for more in other ways.
void fill_the_card(std::size_t chunk) {
  std::size_t free_before = 0, free_after = 0, total = 0;
  GPU_CHECK(cudaMemGetInfo(&free_before, &total));
  const CUmemAllocationProp wanted = properties();
  std::vector<CUmemGenericAllocationHandle> handles;
  CUresult refused = CUDA_SUCCESS;
  const double seconds = seconds_of([&] {
    CUmemGenericAllocationHandle handle = 0;
    while ((refused = driver().create(&handle, chunk, &wanted, 0)) == CUDA_SUCCESS)
      handles.push_back(handle);
  });
  GPU_CHECK(cudaMemGetInfo(&free_after, &total));
  const std::size_t taken = handles.size();
  void* at = nullptr;
  const cudaError_t small = cudaMalloc(&at, 64 * 1024);
  if (small == cudaSuccess) cudaFree(at);
  const cudaError_t large = cudaMalloc(&at, 256 * kMiB);
  if (large == cudaSuccess) cudaFree(at);
  for (std::size_t i = 0; i < 512 * kMiB / chunk; ++i) {
    GPU_CHECK(driver().release(handles.back()));
    handles.pop_back();
  }
  const cudaError_t after_release = cudaMalloc(&at, 256 * kMiB);
  if (after_release == cudaSuccess) cudaFree(at);
  const double released = seconds_of([&] {
    for (const auto handle : handles) GPU_CHECK(driver().release(handle));
  });
  cudaGetLastError();
  Line("whole card in chunks")
      .with("chunk_mib", chunk / kMiB)
      .with("chunks", taken)
      .with("free_before_mib", free_before / double(kMiB))
      .with("free_when_refused_mib", free_after / double(kMiB))
      .with("refusal", refused)
      .with("create_seconds", seconds)
      .with("release_seconds", released)
      .with("small_cudaMalloc", small)
      .with("large_cudaMalloc", large)
      .with("large_after_release", after_release);
}

void beside_kernels() {
  const Filled words(32 * kMiB, tiny ? 16 : 256);
  for (const Range* read : {static_cast<const Range*>(nullptr), &words.range()})
    for (const std::size_t mib : {2, 8, 32, 128}) stalls(read, mib * kMiB, shape().processors);
  stalls(&words.range(), 2 * kMiB, 1);
}

}  // namespace

int main(int argc, char** argv) {
  // Else the first launch of a kernel may wait for those that run.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  tiny = argc > 1 && std::string(argv[1]) == "--tiny";
  GPU_CHECK(cudaFree(nullptr));
  tell_facts();
  for (const std::size_t mib : kChunkMiB) verbs_of_one_chunk(mib * kMiB);
  for (const std::size_t mib : {2, 32})
    for (const std::size_t together : {1, 4, 16, 64}) verbs_of_many_chunks(mib * kMiB, together);
  reservations();
  plain_allocations();
  for (const std::size_t mib : {2, 32})
    for (const int threads : {1, 2, 4, 8}) many_threads(mib * kMiB, threads);
  beside_kernels();
  short_kernels();
  long_kernels();
  beside_copies();
  chunk_at_two_places();
  speeds_of_memory();
  for (const std::size_t mib : {32, 2}) fill_the_card(mib * kMiB);
  return 0;
}
