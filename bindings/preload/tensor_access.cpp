// What a program reads or writes of tensors past the operators, by functions that LibTorch exports:
// pointers and archives. LibTorch's kernels call the same ones in their loops, so each costs
// a load and a branch where nobody wants to be told. Only a symbol that is called is looked up, so
// that names of other releases of LibTorch do not matter.

#include "tensor_access.h"

#include <cstdint>

#include "next_definition.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

// Members of the hooks. Written once, read from any thread.
decltype(SpillwayHooks::before_pointer) before_pointer = nullptr;
decltype(SpillwayHooks::archived_tensor) archived_tensor = nullptr;
decltype(SpillwayHooks::archived_bytes) archived_bytes = nullptr;
decltype(SpillwayHooks::read_record) read_record = nullptr;
decltype(SpillwayHooks::leaf_made) leaf_made = nullptr;
decltype(SpillwayHooks::parameter_registered) parameter_registered = nullptr;
decltype(SpillwayHooks::numbers_apart) numbers_apart = nullptr;
decltype(SpillwayHooks::python_begins) python_begins = nullptr;

// The next number of a node that is numbered apart.
thread_local uint64_t number_apart = 0;

template <class Function>
Function read(const Function& shared) {
  return __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
}

// The definition in LibTorch of one of the functions below.
template <class Function>
Function next(Function& known, const char* name, const void* caller) {
  Function found = read(known);
  if (found == nullptr) {
    found = reinterpret_cast<Function>(next_definition(name, name, caller));
    __atomic_store_n(&known, found, __ATOMIC_RELEASE);
  }
  return found;
}

// A function of LibTorch that gives away a pointer into the tensor that is its first argument. Some
// have one or two more, in registers, and all leave their result in one; what a function lacks is
// what the registers happen to hold.
using PointerGiver = void* (*)(const void* tensor, void* second, long third);
using WriteRecord = void (*)(void* writer, const void* name, const void* data, size_t size,
                             bool compress);
// std::optional<c10::Allocator*>, which goes by registers as this does.
struct OptionalAllocator {
  void* allocator;
  bool has_one;
};
using GetRecord = void* (*)(void* result, void* reader, const void* name, OptionalAllocator);
// The result, which has a destructor, is made at an address that the caller gives.
using ResolveNeg = void* (*)(void* result, const void* tensor);
using SetRequiresGrad = void (*)(void* tensor, bool requires_grad);
using RegisterParameter = void* (*)(void* module, void* name, const void* tensor,
                                    bool requires_grad);
using SequenceNumber = uint64_t (*)();
using MakePythonTypes = void (*)();
using WriteableData = void* (*)(void* result, const void* tensor, bool to_cpu);

// What a PointerGiver does where somebody wants to be told, or at its first call. Kept out of those
// that are called in loops, which need no stack then.
__attribute__((noinline, cold)) void* announced(const void* tensor, void* second, long third,
                                                int writes, PointerGiver& known, const char* name,
                                                const void* caller) {
  const auto announce = read(before_pointer);
  if (announce != nullptr) announce(tensor, writes);
  return next(known, name, caller)(tensor, second, third);
}

}  // namespace

void watch_tensor_access(const SpillwayHooks& hooks) {
  __atomic_store_n(&before_pointer, hooks.before_pointer, __ATOMIC_RELEASE);
  __atomic_store_n(&archived_tensor, hooks.archived_tensor, __ATOMIC_RELEASE);
  __atomic_store_n(&archived_bytes, hooks.archived_bytes, __ATOMIC_RELEASE);
  __atomic_store_n(&read_record, hooks.read_record, __ATOMIC_RELEASE);
  __atomic_store_n(&leaf_made, hooks.leaf_made, __ATOMIC_RELEASE);
  __atomic_store_n(&parameter_registered, hooks.parameter_registered, __ATOMIC_RELEASE);
  __atomic_store_n(&numbers_apart, hooks.numbers_apart, __ATOMIC_RELEASE);
  __atomic_store_n(&python_begins, hooks.python_begins, __ATOMIC_RELEASE);
}

// A PointerGiver. Its name here says nothing: the program knows it by its symbol.
#define SPILLWAY_POINTER(FUNCTION, SYMBOL, WRITES)                                               \
  extern "C" SPILLWAY_VISIBLE void* FUNCTION(const void*, void*, long) __asm__(SYMBOL);          \
  void* FUNCTION(const void* tensor, void* second, long third) {                                 \
    static PointerGiver known;                                                                   \
    const PointerGiver real = read(known);                                                       \
    if (__builtin_expect(real != nullptr && read(before_pointer) == nullptr, 1))                 \
      return real(tensor, second, third);                                                        \
    return announced(tensor, second, third, WRITES, known, SYMBOL, __builtin_return_address(0)); \
  }

// All typed pointers to elements of one type: T* data_ptr<T>(), T* mutable_data_ptr<T>() and
// const T* const_data_ptr<T>() for T and const T, as they are mangled since 2.12 and before.
#define SPILLWAY_POINTERS(NAME, TYPE)                                                          \
  SPILLWAY_POINTER(spillway_data_ptr_##NAME, "_ZNK2at10TensorBase8data_ptrI" TYPE "EEPT_v", 1) \
  SPILLWAY_POINTER(spillway_mutable_data_ptr_##NAME,                                           \
                   "_ZNK2at10TensorBase16mutable_data_ptrI" TYPE "EEPT_v", 1)                  \
  SPILLWAY_POINTER(spillway_const_data_ptr_##NAME,                                             \
                   "_ZNK2at10TensorBase14const_data_ptrI" TYPE "EEPKT_v", 0)                   \
  SPILLWAY_POINTER(spillway_const_data_ptr_const_##NAME,                                       \
                   "_ZNK2at10TensorBase14const_data_ptrIK" TYPE "EEPKT_v", 0)                  \
  SPILLWAY_POINTER(spillway_old_const_data_ptr_##NAME,                                         \
                   "_ZNK2at10TensorBase14const_data_ptrI" TYPE "Li0EEEPKT_v", 0)               \
  SPILLWAY_POINTER(                                                                            \
      spillway_old_const_data_ptr_const_##NAME,                                                \
      "_ZNK2at10TensorBase14const_data_ptrIK" TYPE "Li0EEEPKNSt12remove_constIT_E4typeEv", 0)

SPILLWAY_POINTERS(uint8, "h")
SPILLWAY_POINTERS(int8, "a")
SPILLWAY_POINTERS(int16, "s")
SPILLWAY_POINTERS(int32, "i")
SPILLWAY_POINTERS(int64, "l")
SPILLWAY_POINTERS(uint16, "t")
SPILLWAY_POINTERS(uint32, "j")
SPILLWAY_POINTERS(uint64, "m")
SPILLWAY_POINTERS(bool, "b")
SPILLWAY_POINTERS(float, "f")
SPILLWAY_POINTERS(double, "d")
SPILLWAY_POINTERS(half, "N3c104HalfE")
SPILLWAY_POINTERS(bfloat16, "N3c108BFloat16E")
SPILLWAY_POINTERS(float8_e5m2, "N3c1011Float8_e5m2E")
SPILLWAY_POINTERS(float8_e4m3fn, "N3c1013Float8_e4m3fnE")
SPILLWAY_POINTERS(float8_e8m0fnu, "N3c1014Float8_e8m0fnuE")
SPILLWAY_POINTERS(float8_e4m3fnuz, "N3c1015Float8_e4m3fnuzE")
SPILLWAY_POINTERS(float8_e5m2fnuz, "N3c1015Float8_e5m2fnuzE")
SPILLWAY_POINTERS(complex_float, "N3c107complexIfEE")
SPILLWAY_POINTERS(complex_double, "N3c107complexIdEE")
SPILLWAY_POINTERS(complex_half, "N3c107complexINS2_4HalfEEE")
SPILLWAY_POINTERS(complex_bfloat16, "N3c107complexINS2_8BFloat16EEE")
SPILLWAY_POINTERS(qint8, "N3c105qint8E")
SPILLWAY_POINTERS(qint32, "N3c106qint32E")
SPILLWAY_POINTERS(quint8, "N3c106quint8E")
SPILLWAY_POINTERS(quint4x2, "N3c108quint4x2E")
SPILLWAY_POINTERS(quint2x4, "N3c108quint2x4E")

// DLManagedTensor* at::toDLPack(const at::Tensor&) and its like; the last argument of
// toDLPackNonOwning came with 2.14. NumPy's and other libraries' from_dlpack end here.
SPILLWAY_POINTER(spillway_to_dlpack, "_ZN2at8toDLPackERKNS_6TensorE", 1)
SPILLWAY_POINTER(spillway_to_dlpack_versioned, "_ZN2at17toDLPackVersionedERKNS_6TensorE", 1)
SPILLWAY_POINTER(spillway_to_dlpack_read_only, "_ZN2at25toDLPackVersionedReadOnlyERKNS_6TensorE", 0)
SPILLWAY_POINTER(spillway_to_dlpack_non_owning,
                 "_ZN2at17toDLPackNonOwningERKNS_6TensorEP8DLTensorb", 1)
SPILLWAY_POINTER(spillway_old_to_dlpack_non_owning,
                 "_ZN2at17toDLPackNonOwningERKNS_6TensorEP8DLTensor", 1)

// PyObject* torch::utils::tensor_to_numpy(const at::Tensor&, bool force) of libtorch_python:
// numpy() and, by __array__, each function of NumPy.
SPILLWAY_POINTER(spillway_tensor_to_numpy, "_ZN5torch5utils15tensor_to_numpyERKN2at6TensorEb", 1)

// void torch::tensors::initialize_python_bindings() of libtorch_python, which `import torch` calls
// once it has made torch.Tensor. Python's data_ptr() is inline from there on.
#define SPILLWAY_MAKE_PYTHON_TYPES "_ZN5torch7tensors26initialize_python_bindingsEv"
extern "C" SPILLWAY_VISIBLE void spillway_make_python_types() __asm__(SPILLWAY_MAKE_PYTHON_TYPES);

void spillway_make_python_types() {
  static MakePythonTypes known;
  next(known, SPILLWAY_MAKE_PYTHON_TYPES, __builtin_return_address(0))();
  const auto tell = read(python_begins);
  if (tell != nullptr) tell();
}

// The pointers of LibTorch's C interface, for compiled models and for extensions that serve several
// releases. The handle is an at::Tensor*.
SPILLWAY_POINTER(spillway_aoti_pointer, "aoti_torch_get_data_ptr", 1)
SPILLWAY_POINTER(spillway_c_mutable_pointer, "torch_get_mutable_data_ptr", 1)
SPILLWAY_POINTER(spillway_c_const_pointer, "torch_get_const_data_ptr", 0)

// at::Tensor at::_ops::resolve_neg::call(const at::Tensor&): the last that Python's tolist() calls
// before it reads the bytes of the very tensor, by inline functions.
#define SPILLWAY_RESOLVE_NEG "_ZN2at4_ops11resolve_neg4callERKNS_6TensorE"
extern "C" SPILLWAY_VISIBLE void* spillway_resolve_neg(void* result, const void* tensor) __asm__(
    SPILLWAY_RESOLVE_NEG);

void* spillway_resolve_neg(void* result, const void* tensor) {
  static ResolveNeg known;
  const auto real = next(known, SPILLWAY_RESOLVE_NEG, __builtin_return_address(0));
  const auto announce = read(before_pointer);
  if (announce != nullptr) announce(tensor, -1);
  return real(result, tensor);
}

// torch::jit::WriteableTensorData torch::jit::getWriteableTensorData(const at::Tensor&, bool): each
// tensor that torch::save, Module::save, pickle_save and TorchScript write.
#define SPILLWAY_WRITEABLE_DATA "_ZN5torch3jit22getWriteableTensorDataERKN2at6TensorEb"
extern "C" SPILLWAY_VISIBLE void* spillway_writeable_data(
    void* result, const void* tensor, bool to_cpu) __asm__(SPILLWAY_WRITEABLE_DATA);

void* spillway_writeable_data(void* result, const void* tensor, bool to_cpu) {
  static WriteableData known;
  const auto real = next(known, SPILLWAY_WRITEABLE_DATA, __builtin_return_address(0));
  const auto replace = read(archived_tensor);
  return real(result, replace == nullptr ? tensor : replace(tensor), to_cpu);
}

// void caffe2::serialize::PyTorchStreamWriter::writeRecord(const std::string&, const void*, size_t,
// bool): each record of an archive, of Python's torch.save too.
#define SPILLWAY_WRITE_RECORD                             \
  "_ZN6caffe29serialize19PyTorchStreamWriter11writeRecor" \
  "dERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPKvmb"
extern "C" SPILLWAY_VISIBLE void spillway_write_record(
    void* writer, const void* name, const void* data, size_t size,
    bool compress) __asm__(SPILLWAY_WRITE_RECORD);

void spillway_write_record(void* writer, const void* name, const void* data, size_t size,
                           bool compress) {
  static WriteRecord known;
  const auto real = next(known, SPILLWAY_WRITE_RECORD, __builtin_return_address(0));
  const auto replace = read(archived_bytes);
  real(writer, name, replace == nullptr ? data : replace(data, size), size, compress);
}

// std::tuple<at::DataPtr, size_t> caffe2::serialize::PyTorchStreamReader::getRecord(
// const std::string&, std::optional<c10::Allocator*>): each record that torch::load and Python's
// torch.load read.
#define SPILLWAY_GET_RECORD                             \
  "_ZN6caffe29serialize19PyTorchStreamReader9getRecor"  \
  "dERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESa" \
  "IcEEESt8optionalIPN3c109AllocatorEE"
extern "C" SPILLWAY_VISIBLE void* spillway_get_record(
    void* result, void* reader, const void* name,
    OptionalAllocator allocator) __asm__(SPILLWAY_GET_RECORD);

void* spillway_get_record(void* result, void* reader, const void* name,
                          OptionalAllocator allocator) {
  static GetRecord known;
  const auto real = next(known, SPILLWAY_GET_RECORD, __builtin_return_address(0));
  const auto read_it = read(read_record);
  if (read_it == nullptr) return real(result, reader, name, allocator);
  read_it(reinterpret_cast<void (*)()>(real), result, reader, name, &allocator);
  return result;
}

// void c10::TensorImpl::set_requires_grad(bool): parameters and data that require gradients, of
// Python, too.
#define SPILLWAY_SET_REQUIRES_GRAD "_ZN3c1010TensorImpl17set_requires_gradEb"
extern "C" SPILLWAY_VISIBLE void spillway_set_requires_grad(
    void* tensor, bool requires_grad) __asm__(SPILLWAY_SET_REQUIRES_GRAD);

void spillway_set_requires_grad(void* tensor, bool requires_grad) {
  static SetRequiresGrad known;
  const auto real = next(known, SPILLWAY_SET_REQUIRES_GRAD, __builtin_return_address(0));
  real(tensor, requires_grad);
  const auto tell = requires_grad ? read(leaf_made) : nullptr;
  if (tell != nullptr) tell(tensor);
}

// at::Tensor& torch::nn::Module::register_parameter(std::string, at::Tensor, bool): what modules of
// LibTorch's C++ interface train.
#define SPILLWAY_REGISTER_PARAMETER                       \
  "_ZN5torch2nn6Module18register_parameterENSt7__cxx1112" \
  "basic_stringIcSt11char_traitsIcESaIcEEEN2at6TensorEb"
extern "C" SPILLWAY_VISIBLE void* spillway_register_parameter(
    void* module, void* name, const void* tensor,
    bool requires_grad) __asm__(SPILLWAY_REGISTER_PARAMETER);

void* spillway_register_parameter(void* module, void* name, const void* tensor,
                                  bool requires_grad) {
  static RegisterParameter known;
  const auto real = next(known, SPILLWAY_REGISTER_PARAMETER, __builtin_return_address(0));
  void* const parameter = real(module, name, tensor, requires_grad);
  const auto tell = read(parameter_registered);
  if (tell != nullptr) tell(parameter);
  return parameter;
}

// uint64_t at::sequence_number::peek() and get_and_increment(): numbers of a thread, by which
// autograd orders the nodes of a graph.
#define SPILLWAY_PEEK "_ZN2at15sequence_number4peekEv"
#define SPILLWAY_GET_AND_INCREMENT "_ZN2at15sequence_number17get_and_incrementEv"
extern "C" SPILLWAY_VISIBLE uint64_t spillway_peek() __asm__(SPILLWAY_PEEK);
extern "C" SPILLWAY_VISIBLE uint64_t
spillway_get_and_increment() __asm__(SPILLWAY_GET_AND_INCREMENT);

uint64_t spillway_peek() {
  static SequenceNumber known;
  const auto is_apart = read(numbers_apart);
  if (is_apart != nullptr && is_apart() != 0) return number_apart;
  return next(known, SPILLWAY_PEEK, __builtin_return_address(0))();
}

uint64_t spillway_get_and_increment() {
  static SequenceNumber known;
  const auto is_apart = read(numbers_apart);
  if (is_apart != nullptr && is_apart() != 0) return number_apart++;
  return next(known, SPILLWAY_GET_AND_INCREMENT, __builtin_return_address(0))();
}

}  // namespace spillway::preload
