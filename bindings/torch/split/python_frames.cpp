#include "python_frames.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace spillway::split {
namespace {

constexpr int kMostFrames = 8;

template <class Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

/// What Python's faulthandler writes: a line for each frame, which begins with its file.
std::string dumped() {
  const auto state_of_thread = find<void* (*)()>("PyGILState_GetThisThreadState");
  const auto dump = find<void (*)(int, void*)>("_Py_DumpTraceback");
  if (state_of_thread == nullptr || dump == nullptr) return {};
  void* const state = state_of_thread();
  std::array<int, 2> ends{};
  // What does not fit into the pipe is left out.
  if (state == nullptr || ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return {};
  dump(ends[1], state);
  std::string text(1 << 16, '\0');
  const ssize_t size = ::read(ends[0], text.data(), text.size());
  text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  for (const int end : ends) ::close(end);
  return text;
}

}  // namespace

std::string python_frames() {
  constexpr std::string_view kStart = "  File ";
  const std::string text = dumped();
  std::string frames;
  int count = 0;
  std::size_t at = 0;
  while (count < kMostFrames) {
    const std::size_t begin = text.find(kStart, at);
    if (begin == std::string::npos) break;
    at = std::min(text.find('\n', begin), text.size());
    const std::string frame = text.substr(begin + kStart.size(), at - begin - kStart.size());
    if (count > 0 && frame.find("-packages/torch/") != std::string::npos) continue;
    frames += (count++ == 0 ? "" : ", called from ") + frame;
  }
  return frames;
}

}  // namespace spillway::split
