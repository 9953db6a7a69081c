#include "python_parameters.h"

#include <dlfcn.h>

namespace spillway::split {
namespace {

/// Functions of Python's stable interface, where the process has one: nothing is linked.
struct Python {
  int (*ensure)() = nullptr;
  void (*release)(int) = nullptr;
  PyObject* (*import)(const char*) = nullptr;
  PyObject* (*attribute)(PyObject*, const char*) = nullptr;
  PyObject* (*type_of)(PyObject*) = nullptr;
  int (*is_subtype)(PyObject*, PyObject*) = nullptr;
  void (*let_go)(PyObject*) = nullptr;
  void (*clear_error)() = nullptr;
  bool is_there = true;

  Python() {
    find("PyGILState_Ensure", ensure);
    find("PyGILState_Release", release);
    find("PyImport_ImportModule", import);
    find("PyObject_GetAttrString", attribute);
    find("PyObject_Type", type_of);
    find("PyType_IsSubtype", is_subtype);
    find("Py_DecRef", let_go);
    find("PyErr_Clear", clear_error);
  }

  template <class Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
    is_there &= function != nullptr;
  }

  /// The type torch.nn.Parameter, for good; null where there is none.
  PyObject* parameter() const {
    PyObject* const module = import("torch.nn.parameter");
    PyObject* const type = module == nullptr ? nullptr : attribute(module, "Parameter");
    if (module != nullptr) let_go(module);
    if (type == nullptr) clear_error();
    return type;
  }
};

}  // namespace

bool is_python_parameter(const at::Tensor& tensor) {
  PyObject* const object = tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  if (object == nullptr) return false;
  static const Python python;
  if (!python.is_there) return false;
  const int state = python.ensure();
  static PyObject* const parameter = python.parameter();
  PyObject* const type = python.type_of(object);
  const bool is_one = parameter != nullptr && python.is_subtype(type, parameter) != 0;
  python.let_go(type);
  python.release(state);
  return is_one;
}

}  // namespace spillway::split
