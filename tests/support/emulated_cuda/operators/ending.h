#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace spillway::emulated {

/// For what a GPU answers with a lost context: no caller is left who could take an exception.
[[noreturn]] inline void end_process(const std::string& sentence) {
  std::fprintf(stderr, "emulated CUDA: %s\n", sentence.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace spillway::emulated
