// LibTorch has data_ptr() inline, so its class in Python gets a method of that name before the
// inherited one. Python's interface is looked up: the core serves programs without Python, too, and
// all of its releases.

#include "python_pointers.h"

#include <cxxabi.h>

#include <exception>
#include <string>

#include "device_runtimes.h"
#include "interceptor.h"
#include "spillway/base/log.h"
#include "spillway/base/shared_library.h"

namespace spillway::torch_binding {
namespace {

struct PythonObject;  // PyObject
struct PythonType;    // PyTypeObject
struct PythonThread;  // PyThreadState

// PyMethodDef
struct PythonMethod {
  const char* name;
  PythonObject* (*function)(PythonObject* self, PythonObject* none);
  int flags;
  const char* text;
};
constexpr int kWithoutArguments = 0x0004;  // METH_NOARGS

struct Python {
  PythonObject* (*PyImport_AddModule)(const char*) = nullptr;  // Borrowed.
  PythonObject* (*PyObject_GetAttrString)(PythonObject*, const char*) = nullptr;
  int (*PyObject_SetAttrString)(PythonObject*, const char*, PythonObject*) = nullptr;
  PythonObject* (*PyDescr_NewMethod)(PythonType*, PythonMethod*) = nullptr;
  PythonObject* (*PyObject_CallFunctionObjArgs)(PythonObject*, ...) = nullptr;
  void* (*PyLong_AsVoidPtr)(PythonObject*) = nullptr;
  PythonObject* (*PyErr_Occurred)() = nullptr;
  void (*PyErr_Clear)() = nullptr;
  PythonThread* (*PyEval_SaveThread)() = nullptr;
  void (*PyEval_RestoreThread)(PythonThread*) = nullptr;
  void (*Py_DecRef)(PythonObject*) = nullptr;
  void (*translate)(const std::exception_ptr&) = nullptr;  // Of LibTorch.
  PythonObject* inherited = nullptr;                       // TensorBase.data_ptr
};
Python python;

/// What is lacking by name; empty: nothing.
std::string find_python() {
  std::string lacking;
  const auto find = [&](auto*& function, const char* name, void* library = nullptr) {
    if (!find_function(library, name, function)) lacking = name;
  };
#define SPILLWAY_FIND(NAME) find(python.NAME, #NAME)
  SPILLWAY_FIND(PyImport_AddModule);
  SPILLWAY_FIND(PyObject_GetAttrString);
  SPILLWAY_FIND(PyObject_SetAttrString);
  SPILLWAY_FIND(PyDescr_NewMethod);
  SPILLWAY_FIND(PyObject_CallFunctionObjArgs);
  SPILLWAY_FIND(PyLong_AsVoidPtr);
  SPILLWAY_FIND(PyErr_Occurred);
  SPILLWAY_FIND(PyErr_Clear);
  SPILLWAY_FIND(PyEval_SaveThread);
  SPILLWAY_FIND(PyEval_RestoreThread);
  SPILLWAY_FIND(Py_DecRef);
#undef SPILLWAY_FIND
  find(python.translate,
       "_ZN5torch29translate_exception_to_pythonERKNSt15__exception_ptr13exception_ptrE",
       loaded_library("libtorch_python.so"));
  return lacking;
}

PythonObject* data_ptr_of(PythonObject* tensor, PythonObject* /*none*/) {
  PythonObject* const number =
      python.PyObject_CallFunctionObjArgs(python.inherited, tensor, nullptr);
  if (number == nullptr || !DeviceRuntimes::are_some()) return number;
  const void* const address = python.PyLong_AsVoidPtr(number);
  // A subclass may answer with what it likes.
  if (python.PyErr_Occurred() != nullptr) python.PyErr_Clear();
  // Who gives Python's lock away may get it back milliseconds later, so where nothing is to be done
  // it is kept: for tensors of the host, unless some memory of a GPU is kept for operators to
  // rerun.
  if (!Interceptor::heeds_address(address)) return number;
  std::exception_ptr failure;
  // It may take long, and wait for others who need Python.
  PythonThread* const thread = python.PyEval_SaveThread();
  try {
    Interceptor::before_address(address);
  } catch (const abi::__forced_unwind&) {
    throw;  // The interpreter has ended this thread.
  } catch (...) {
    failure = std::current_exception();
  }
  python.PyEval_RestoreThread(thread);
  if (failure == nullptr) return number;
  python.Py_DecRef(number);
  python.translate(failure);
  return nullptr;
}

/// As above.
std::string put_before_inherited() {
  if (const std::string lacking = find_python(); !lacking.empty()) return lacking;
  static PythonMethod method{
      "data_ptr", &data_ptr_of, kWithoutArguments,
      "Address of the first element. On a GPU the tensor stays there until it is freed."};
  PythonObject* const torch = python.PyImport_AddModule("torch");
  if (torch == nullptr) return "module torch";
  PythonObject* const type = python.PyObject_GetAttrString(torch, "Tensor");
  if (type == nullptr) return "torch.Tensor";
  python.inherited = python.PyObject_GetAttrString(type, method.name);
  if (python.inherited == nullptr) return "torch.Tensor.data_ptr";
  PythonObject* const descriptor =
      python.PyDescr_NewMethod(reinterpret_cast<PythonType*>(type), &method);
  if (descriptor == nullptr || python.PyObject_SetAttrString(type, method.name, descriptor) != 0)
    return "torch.Tensor that takes methods";
  python.Py_DecRef(descriptor);
  python.Py_DecRef(type);
  return {};
}

}  // namespace

void watch_python_pointers() {
  if (python.inherited != nullptr) return;  // The module is loaded anew; its class is the same.
  const std::string lacking = put_before_inherited();
  if (lacking.empty()) return;
  if (python.PyErr_Clear != nullptr) python.PyErr_Clear();
  log_warning("this Python has no {} as Spillway knows it: kernels on a GPU that go by data_ptr() "
              "(Triton, torch.compile) are not seen, and fail where their tensors are not in "
              "memory; TORCH_COMPILE_DISABLE=1 leaves torch.compile out",
              lacking);
}

}  // namespace spillway::torch_binding
