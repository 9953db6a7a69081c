#include "measure.h"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

namespace awkward {
namespace {

constexpr std::size_t kMib = std::size_t{1} << 20;
constexpr std::size_t kSmallest = 4096;  // Spillway leaves what is smaller in memory.

struct Count {
  std::mutex mutex;
  std::unordered_map<void*, std::size_t> sizes;
  std::size_t live = 0;
  std::size_t peak = 0;
  std::size_t largest_operator = 0;
  std::string largest_name;
};

Count& count() {
  static auto* const all = new Count;  // Outlives the storages that static destructors free.
  return *all;
}

/// Passes everything on to LibTorch's own allocator and adds up.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator& inner) : inner_(inner) { self_ = this; }

  c10::DataPtr allocate(std::size_t size) override {
    void* const memory = inner_.raw_allocate(size);
    if (size >= kSmallest) {
      const std::lock_guard lock(count().mutex);
      count().sizes[memory] = size;
      count().live += size;
      count().peak = std::max(count().peak, count().live);
    }
    return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t size) const override {
    inner_.copy_data(to, from, size);
  }

 private:
  static void release(void* memory) {
    {
      const std::lock_guard lock(count().mutex);
      const auto entry = count().sizes.find(memory);
      if (entry != count().sizes.end()) {
        count().live -= entry->second;
        count().sizes.erase(entry);
      }
    }
    self_->inner_.raw_deleter()(memory);
  }

  static CountingAllocator* self_;
  c10::Allocator& inner_;
};

CountingAllocator* CountingAllocator::self_ = nullptr;

struct Touched final : at::ObserverContext {
  std::set<const void*> storages;
  std::size_t bytes = 0;

  void add(const c10::IValue& value) {
    if (value.isTensorList()) {
      for (const at::Tensor& element : value.toTensorVector()) {
        add(c10::IValue(element));
      }
    }
    if (!value.isTensor()) {
      return;
    }
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || !tensor.has_storage() || tensor.storage().nbytes() < kSmallest) {
      return;
    }
    if (storages.insert(tensor.storage().unsafeGetStorageImpl()).second) {
      bytes += tensor.storage().nbytes();
    }
  }
};

std::unique_ptr<at::ObserverContext> operator_starts(const at::RecordFunction& record) {
  auto touched = std::make_unique<Touched>();
  for (const c10::IValue& value : record.inputs()) {
    touched->add(value);
  }
  return touched;
}

void operator_ends(const at::RecordFunction& record, at::ObserverContext* context) {
  auto& touched = static_cast<Touched&>(*context);
  for (const c10::IValue& value : record.outputs()) {
    touched.add(value);
  }
  const std::lock_guard lock(count().mutex);
  if (touched.bytes > count().largest_operator) {
    count().largest_operator = touched.bytes;
    count().largest_name = record.name();
  }
}

}  // namespace

void start_measuring() {
  auto* const allocator = new CountingAllocator(*c10::GetCPUAllocator());
  c10::SetAllocator(c10::DeviceType::CPU, allocator, /*priority=*/255);
  at::addGlobalCallback(at::RecordFunctionCallback(&operator_starts, &operator_ends)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
}

std::string measurement() {
  const std::lock_guard lock(count().mutex);
  return "peak " + std::to_string(count().peak / kMib) + " MiB, largest operator " +
         std::to_string(count().largest_operator / kMib) + " MiB (" + count().largest_name + ")";
}

}  // namespace awkward
