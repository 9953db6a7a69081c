// Stands for the core in a program that is split over ranks: operators bring their inputs in, and
// what else is read has to be announced by the preload library.

#include "absent_memory.h"

#include <ATen/record_function.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <torch/types.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "spillway/preload/hooks.h"

namespace {

struct Region {
  std::string name;
  char* begin;
  std::size_t size;
  float value;
  bool is_absent = true;
};

std::mutex mutex;
auto& regions = *new std::vector<Region>;
auto& told = *new std::string;
thread_local int depth = 0;  // Of operators.

void tell(const std::string& what) { told += (told.empty() ? "" : "; ") + what; }

Region* absent_at(const void* memory) {
  for (Region& region : regions)
    if (region.is_absent && memory >= region.begin && memory < region.begin + region.size)
      return &region;
  return nullptr;
}

Region* absent_under(const at::TensorBase& tensor) {
  return tensor.defined() && tensor.has_storage()
             ? absent_at(tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr().get())
             : nullptr;
}

std::vector<float> contents(const Region& region) {
  return std::vector<float>(region.size / sizeof(float), region.value);
}

void bring_in(Region& region) {
  region.is_absent = false;
  TORCH_CHECK(::mprotect(region.begin, region.size, PROT_READ | PROT_WRITE) == 0);
  std::fill_n(reinterpret_cast<float*>(region.begin), region.size / sizeof(float), region.value);
}

void refuse(const Region* region) {
  if (region != nullptr && region->name == "refused") throw std::runtime_error("it is nowhere");
}

void before_pointer(const void* tensor, int writes) {
  if (depth > 0) return;
  const std::lock_guard lock(mutex);
  Region* region = absent_under(*static_cast<const at::TensorBase*>(tensor));
  refuse(region);
  if (region == nullptr) return;
  bring_in(*region);
  tell(region->name + (writes > 0 ? " to write" : " to read"));
}

const void* archived_tensor(const void* given) {
  thread_local auto& copy = *new at::Tensor;
  const std::lock_guard lock(mutex);
  const auto& tensor = *static_cast<const at::Tensor*>(given);
  const Region* region = absent_under(tensor);
  refuse(region);
  if (region == nullptr) return given;
  tell(region->name + " as a tensor");
  ++depth;
  copy = at::tensor(contents(*region)).as_strided(tensor.sizes(), tensor.strides(), 0);
  --depth;
  return &copy;
}

const void* archived_bytes(const void* memory, std::size_t size) {
  thread_local auto& copy = *new std::vector<float>;
  const std::lock_guard lock(mutex);
  const Region* region = absent_at(memory);
  refuse(region);
  if (region == nullptr) return memory;
  tell(region->name + " as " + std::to_string(size) + " bytes");
  copy = contents(*region);
  return copy.data();
}

// Operators that touch no bytes themselves: views, and those that look at types alone.
bool only_looks(const at::RecordFunction& call) {
  const auto schema = call.operator_schema();
  if (!schema || schema->name() == "aten::_has_compatible_shallow_copy_type") return true;
  return std::ranges::any_of(schema->arguments(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && !argument.alias_info()->isWrite();
  });
}

struct Counted : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& call) {
  if (only_looks(call)) return nullptr;
  if (depth++ == 0) {
    const std::lock_guard lock(mutex);
    for (const c10::IValue& input : call.inputs()) {
      Region* region = input.isTensor() ? absent_under(input.toTensor()) : nullptr;
      if (region == nullptr) continue;
      bring_in(*region);
      tell(region->name + " by " + call.name());
    }
  }
  return std::make_unique<Counted>();
}

void after_operator(const at::RecordFunction& /*call*/, at::ObserverContext* counted) {
  if (counted != nullptr) --depth;
}

struct AtLoad {
  AtLoad() {
    SpillwayHooks hooks{};
    hooks.version = SPILLWAY_HOOKS_VERSION;
    hooks.before_pointer = &before_pointer;
    hooks.archived_tensor = &archived_tensor;
    hooks.archived_bytes = &archived_bytes;
    const auto preloaded =
        reinterpret_cast<SpillwayPreloadRegister>(dlsym(RTLD_DEFAULT, "spillway_preload_register"));
    TORCH_CHECK(preloaded != nullptr && preloaded(&hooks) == 0);
    at::addGlobalCallback(at::RecordFunctionCallback(&before_operator, &after_operator)
                              .needsInputs(true)
                              .scopes({at::RecordScope::FUNCTION}));
  }
} at_load;

}  // namespace

void* absent_memory(const char* name, std::size_t size, float value) {
  void* memory = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED);
  const std::lock_guard lock(mutex);
  regions.push_back({name, static_cast<char*>(memory), size, value});
  return memory;
}

void bring_in_all() {
  const std::lock_guard lock(mutex);
  for (Region& region : regions)
    if (region.is_absent) bring_in(region);
}

const char* announcements() {
  thread_local auto& given = *new std::string;
  const std::lock_guard lock(mutex);
  given = std::exchange(told, "");
  return given.c_str();
}
