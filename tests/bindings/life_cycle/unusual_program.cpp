// Starts the trainer that is linked in, or the one in the plugin that the second word names: then
// this program knows nothing of LibTorch.

#include <dlfcn.h>

#include <cstdio>

extern "C" int run_unusual_trainer(const char* way) __attribute__((weak));

int main(int count, char** words) {
  if (count < 2) return 2;
  if (count == 2) return run_unusual_trainer(words[1]);
  void* const plugin = dlopen(words[2], RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  return reinterpret_cast<int (*)(const char*)>(dlsym(plugin, "run_unusual_trainer"))(words[1]);
}
