// Stands for libtorch_python.so: gives its engine to LibTorch when it is imported.

namespace torch::autograd {
class Engine;
void set_default_engine_stub(Engine& (*stub)());
}  // namespace torch::autograd

extern "C" void import_torch() {
  torch::autograd::set_default_engine_stub(
      []() -> torch::autograd::Engine& { return *static_cast<torch::autograd::Engine*>(nullptr); });
}
