#include "record_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <caffe2/serialize/inline_container.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace spillway::split {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLeast = std::size_t{64} << 10;  ///< Bytes that are worth a mapping.
/// The system allows a process some 65,000 mappings.
constexpr std::size_t kMostRecords = std::size_t{1} << 14;

std::byte* page_of(std::byte* memory) {
  return memory - reinterpret_cast<std::uintptr_t>(memory) % kPage;
}
std::byte* page_behind(std::byte* memory) { return page_of(memory + kPage - 1); }

struct Records {
  std::mutex mutex;
  std::map<const std::byte*, RecordMemory*> by_end;
};

Records& records() {
  static auto* made = new Records;
  return *made;
}

std::atomic<RecordMemory::EndObserver> end_observer{nullptr};

void release(void* context) { delete static_cast<RecordMemory*>(context); }

c10::DataPtr data_of(std::unique_ptr<RecordMemory> memory, void* begin) {
  return {begin, memory.release(), &release, c10::Device(c10::DeviceType::CPU)};
}

/// Tensors are numbers, in all archives that LibTorch writes.
bool is_tensor(const std::string& name) {
  const std::string last = name.substr(name.rfind('/') + 1);
  return !last.empty() && std::all_of(last.begin(), last.end(),
                                      [](char letter) { return letter >= '0' && letter <= '9'; });
}

bool has_room() {
  const std::lock_guard lock(records().mutex);
  return records().by_end.size() < kMostRecords;
}

}  // namespace

/// A record that this thread reads. What LibTorch, or the Python file that it reads by, asks the
/// system to read into the record's memory is mapped instead. So it shows which file the record
/// is in, and where, whoever has opened it; and what is there is true for all who look on the way.
class RecordReading final : public c10::Allocator {
 public:
  explicit RecordReading(std::uint64_t from) : from_(from) { current = this; }
  ~RecordReading() { current = nullptr; }

  c10::DataPtr allocate(std::size_t size) override {
    if (size < kLeast || memory_ != nullptr) return c10::GetCPUAllocator()->allocate(size);
    auto made = std::make_unique<RecordMemory>(from_, size);
    memory_ = made.get();
    return data_of(std::move(made), memory_->begin_);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  /// Throws IoError.
  bool read_part(int descriptor, std::byte* memory, std::size_t size, off_t from) {
    if (memory_ == nullptr || !memory_->contains(memory, size)) return false;
    std::byte* const first = page_behind(memory);
    std::byte* const last = page_of(memory + size);
    if (last < first + kLeast / 2) return false;
    const bool moves = from < 0;
    if (moves) from = ::lseek(descriptor, 0, SEEK_CUR);
    const auto offset = static_cast<std::uint64_t>(memory - memory_->begin_);
    if (from < 0 || static_cast<std::uint64_t>(from) != from_ + offset) return false;
    struct stat facts {};
    if (::fstat(descriptor, &facts) != 0 || from + static_cast<off_t>(size) > facts.st_size)
      return false;
    std::shared_ptr<const ArchiveFile>& file = memory_->range_.file;
    if (file == nullptr) file = ArchiveFile::of(descriptor);
    if (file == nullptr || !file->is(facts)) return false;
    const auto at = [&](const std::byte* where) {
      return static_cast<std::uint64_t>(from + (where - memory));
    };
    file->read(at(memory), memory, static_cast<std::size_t>(first - memory));
    if (!file->map(at(first), first, static_cast<std::size_t>(last - first))) return false;
    file->read(at(last), last, static_cast<std::size_t>(memory + size - last));
    if (moves) ::lseek(descriptor, static_cast<off_t>(size), SEEK_CUR);
    mapped_.emplace_back(first, last);
    return true;
  }

  /// Makes all of it the file, if all of it is what is there. Throws IoError.
  bool ends() {
    if (memory_ == nullptr) return true;
    const RecordMemory& memory = *memory_;
    std::sort(mapped_.begin(), mapped_.end());
    std::byte* done = memory.begin_;
    for (const auto& [first, last] : mapped_) {
      if (!is_in_file(done, first)) return false;
      done = std::max(done, last);
    }
    return !mapped_.empty() && is_in_file(done, memory.begin_ + memory.range_.size) &&
           memory_->becomes_the_file();
  }

  static RecordReading* of_this_thread() { return current; }

 private:
  /// What came by another way, as by the buffer of a Python file.
  bool is_in_file(const std::byte* begin, const std::byte* end) const {
    if (begin >= end) return true;
    std::vector<std::byte> bytes(static_cast<std::size_t>(end - begin));
    memory_->range_.file->read(from_ + static_cast<std::uint64_t>(begin - memory_->begin_),
                               bytes.data(), bytes.size());
    return std::memcmp(bytes.data(), begin, bytes.size()) == 0;
  }

  static inline thread_local RecordReading* current = nullptr;
  const std::uint64_t from_;
  RecordMemory* memory_ = nullptr;  ///< LibTorch's, as long as this reads.
  std::vector<std::pair<std::byte*, std::byte*>> mapped_;
};

RecordMemory::Record RecordMemory::read(Read read, Reader& reader, const std::string& name,
                                        std::optional<c10::Allocator*> allocator) {
  if (allocator || RecordReading::of_this_thread() != nullptr || !is_tensor(name) || !has_room())
    return read(reader, name, allocator);
  const std::uint64_t from = reader.getRecordOffset(name);
  if (from % c10::gAlignment != 0) return read(reader, name, allocator);
  RecordReading reading(from);
  Record record = read(reader, name, &reading);
  if (reading.ends()) return record;
  const std::size_t size = std::get<1>(record);
  c10::DataPtr copy = c10::GetCPUAllocator()->allocate(size);
  std::memcpy(copy.get(), std::get<0>(record).get(), size);
  return {std::move(copy), size};
}

bool RecordMemory::read_part(int descriptor, void* memory, std::size_t size, off_t from) noexcept {
  RecordReading* const reading = RecordReading::of_this_thread();
  if (reading == nullptr) return false;
  try {
    return reading->read_part(descriptor, static_cast<std::byte*>(memory), size, from);
  } catch (const std::exception&) {
    return false;  // Whoever asks finds the same.
  }
}

RecordMemory::RecordMemory(std::uint64_t from, std::size_t size)
    : mapped_((from % kPage + size + kPage - 1) / kPage * kPage), range_{nullptr, from, size} {
  void* const made = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) throw std::bad_alloc();
  pages_ = static_cast<std::byte*>(made);
  begin_ = pages_ + from % kPage;
  const std::lock_guard lock(records().mutex);
  records().by_end[pages_ + mapped_] = this;
}

RecordMemory::~RecordMemory() {
  const auto observer = end_observer.load(std::memory_order_relaxed);
  if (observer != nullptr) observer(begin_);
  {
    const std::lock_guard lock(records().mutex);
    records().by_end.erase(pages_ + mapped_);
  }
  ::munmap(pages_, mapped_);
}

bool RecordMemory::contains(const void* memory, std::size_t size) const {
  return memory >= begin_ && static_cast<const std::byte*>(memory) + size <= begin_ + range_.size;
}

bool RecordMemory::becomes_the_file() {
  return range_.file->map(range_.from / kPage * kPage, pages_, mapped_);
}

RecordMemory* RecordMemory::of(const c10::DataPtr& memory) {
  return memory.cast_context<RecordMemory>(&release);
}

c10::DeleterFnPtr RecordMemory::deleter() { return &release; }

const RecordMemory* RecordMemory::around(const void* address) noexcept {
  const std::lock_guard lock(records().mutex);
  const auto found = records().by_end.upper_bound(static_cast<const std::byte*>(address));
  return found != records().by_end.end() && address >= found->second->pages_ ? found->second
                                                                             : nullptr;
}

void RecordMemory::observe_ends(EndObserver observer) { end_observer.store(observer); }

}  // namespace spillway::split
