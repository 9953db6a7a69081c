// Loads libraries while it runs, for itself alone, as Python does with modules. Each argument is a
// library; for one with `import_torch` that function is called, as Python's import would.

#include <dlfcn.h>

#include <cstdio>
#include <thread>

int main(int count, char** paths) {
  std::thread([] {}).join();
  std::puts("trainer: starts");
  for (int i = 1; i < count; ++i) {
    void* library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::puts(dlerror());
      return 1;
    }
    if (auto* import = reinterpret_cast<void (*)()>(dlsym(library, "import_torch"))) import();
  }
  std::thread([] {}).join();
  return 5;
}
