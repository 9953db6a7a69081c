// A program that is linked with LibTorch, starts a thread and ends with its own exit code.

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace torch::autograd {
class Engine;
void set_default_engine_stub(Engine& (*stub)());
}  // namespace torch::autograd

int main() {
  // Never called: it only makes the library needed.
  if (std::getenv("NEVER_SET_ANYWHERE") != nullptr)
    torch::autograd::set_default_engine_stub(nullptr);
  std::puts("trainer: starts");
  int result = 0;
  std::thread([&] { result = 7; }).join();
  std::system("echo \"child: ${LD_PRELOAD:-nothing preloaded}\"");
  return result;
}
