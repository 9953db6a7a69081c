// Reads tensors past the operators in each way that C++ has, under a core whose tensors are absent.
// Prints a line for each: the way, what was announced, and what the program then read.

#include <ATen/DLConvertor.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>

#include "absent_memory.h"

namespace {

constexpr int kCount = 6;

void* core() {
  static void* const handle = ::dlopen(std::getenv("ABSENT_CORE"), RTLD_NOW | RTLD_NOLOAD);
  TORCH_CHECK(handle != nullptr, ::dlerror());
  return handle;
}

template <class Function>
Function of_core(const char* name) {
  return reinterpret_cast<Function>(::dlsym(core(), name));
}

at::Tensor absent(const char* name, at::IntArrayRef sizes = {kCount}, float value = 1.5F) {
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * sizeof(float);
  return torch::from_blob(of_core<AbsentMemory>("absent_memory")(name, bytes, value), sizes);
}

void report(const char* way, const std::string& read) {
  std::printf("%s: %s -> %s\n", way, of_core<Announcements>("announcements")(), read.c_str());
}

// Reads a tensor that is absent, or tells why that is refused.
void read(const char* way, const std::function<float(const at::Tensor&)>& element,
          const char* name = "x") {
  try {
    const at::Tensor tensor = absent(name);
    std::ostringstream text;
    text << element(tensor);
    report(way, text.str());
  } catch (const std::runtime_error& error) {
    report(way, error.what());
  } catch (const c10::Error& error) {
    report(way, "refused by LibTorch");
  }
}

void read_by_pointers() {
  read("data_ptr<float>", [](const at::Tensor& x) { return x.data_ptr<float>()[1]; });
  read("mutable_data_ptr<float>",
       [](const at::Tensor& x) { return x.mutable_data_ptr<float>()[1]; });
  read("const_data_ptr<float>", [](const at::Tensor& x) { return x.const_data_ptr<float>()[1]; });
  read("const_data_ptr<const float>",
       [](const at::Tensor& x) { return x.const_data_ptr<const float>()[1]; });
  read("accessor<float>", [](const at::Tensor& x) { return x.accessor<float, 1>()[1]; });
  read("accessor<const float>",
       [](const at::Tensor& x) { return x.accessor<const float, 1>()[1]; });
  read("packed_accessor64<float>",
       [](const at::Tensor& x) { return x.packed_accessor64<float, 1>()[1]; });
  read("of a view", [](const at::Tensor& x) { return x.view({2, 3}).data_ptr<float>()[1]; });
  read("of another type",
       [](const at::Tensor& x) { return static_cast<float>(x.data_ptr<double>()[1]); });
  read(
      "refused", [](const at::Tensor& x) { return x.data_ptr<float>()[1]; }, "refused");
}

template <class Pointer>
float read_by_handle(const at::Tensor& tensor, AOTITorchError (*get)(AtenTensorHandle, Pointer*)) {
  at::Tensor copy = tensor;
  Pointer memory = nullptr;
  TORCH_CHECK(get(reinterpret_cast<AtenTensorHandle>(&copy), &memory) == AOTI_TORCH_SUCCESS);
  return static_cast<const float*>(memory)[1];
}

void read_by_interfaces() {
  const auto element = [](const DLTensor& tensor) {
    return static_cast<const float*>(tensor.data)[1];
  };
  read("toDLPack", [&](const at::Tensor& x) { return element(at::toDLPack(x)->dl_tensor); });
  read("toDLPackVersioned",
       [&](const at::Tensor& x) { return element(at::toDLPackVersioned(x)->dl_tensor); });
  read("toDLPackNonOwning", [&](const at::Tensor& x) {
    DLTensor out;
    at::toDLPackNonOwning(x, &out);
    return element(out);
  });
  read("aoti_torch_get_data_ptr",
       [](const at::Tensor& x) { return read_by_handle(x, &aoti_torch_get_data_ptr); });
  read("torch_get_mutable_data_ptr",
       [](const at::Tensor& x) { return read_by_handle(x, &torch_get_mutable_data_ptr); });
  read("torch_get_const_data_ptr",
       [](const at::Tensor& x) { return read_by_handle(x, &torch_get_const_data_ptr); });
}

// Inline functions, whose pointers are taken here and not followed.
void take_untyped_pointers() {
  const at::Tensor tensor = absent("x");
  const bool are_equal = tensor.data_ptr() == tensor.const_data_ptr() &&
                         tensor.data_ptr() == tensor.storage().data() &&
                         tensor.data_ptr() == tensor.storage().mutable_data();
  report("untyped pointers", are_equal ? "equal" : "different");
}

void read_by_operators() {
  read("item", [](const at::Tensor& x) { return x[1].item<float>(); });
  read("operator<<", [](const at::Tensor& x) {
    std::ostringstream text;
    text << x;
    return std::stof(text.str());
  });
}

// The bytes of an archive that `save` makes, once while tensors are absent and once while they are
// there.
void compare(const char* way, const std::function<void(std::ostream&)>& save) {
  std::ostringstream absent_then;
  save(absent_then);
  const std::string announced = of_core<Announcements>("announcements")();
  of_core<BringInAll>("bring_in_all")();
  std::ostringstream there;
  save(there);
  const bool is_same = absent_then.str() == there.str();
  std::printf("%s: %s -> %s bytes\n", way, announced.c_str(), is_same ? "the same" : "other");
}

void write_archives() {
  const at::Tensor tensor = absent("x");
  compare("save of a tensor", [&](std::ostream& to) { torch::save(tensor, to); });
  const at::Tensor whole = absent("x");
  compare("save of a view", [&](std::ostream& to) { torch::save(whole.narrow(0, 2, 2), to); });
  const at::Tensor pickled = absent("x");
  compare("pickle_save", [&](std::ostream& to) {
    const std::vector<char> bytes = torch::pickle_save(pickled);
    to.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  });

  torch::nn::Linear layer(3, 2);
  layer->weight.set_data(absent("weight", {2, 3}));
  layer->bias.set_data(absent("bias", {2}, 2.5F));
  compare("save of a module", [&](std::ostream& to) { torch::save(layer, to); });

  torch::optim::Adam optimizer(layer->parameters());
  layer->forward(torch::ones({1, 3})).sum().backward();
  optimizer.step();
  auto& state = static_cast<torch::optim::AdamParamState&>(
      *optimizer.state().at(layer->weight.unsafeGetTensorImpl()));
  state.exp_avg(absent("exp_avg", {2, 3}));
  compare("save of an optimizer", [&](std::ostream& to) { torch::save(optimizer, to); });

  try {
    std::ostringstream to;
    torch::save(absent("refused"), to);
  } catch (const std::runtime_error& error) {
    report("save that is refused", error.what());
  }
}

}  // namespace

int main() {
  read_by_pointers();
  read_by_interfaces();
  take_untyped_pointers();
  read_by_operators();
  write_archives();
}
