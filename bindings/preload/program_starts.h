#pragma once

namespace spillway::preload {

using Words = char* const*;

/// What a call starts.
struct Program {
  const char* name = nullptr;     ///< Null: an open file.
  bool is_searched = false;       ///< A name without a slash stands for a file in PATH.
  bool replaces_this_one = true;  ///< By exec; else it comes beside this one.
};

/// Refers to a function that starts a program with the environment that it is given.
class Starter {
 public:
  template <class Start>
  explicit Starter(const Start& start)
      : start_(&start), call_([](const void* given, Words environment) {
          return (*static_cast<const Start*>(given))(environment);
        }) {}
  int operator()(Words environment) const { return call_(start_, environment); }

 private:
  const void* start_;
  int (*call_)(const void*, Words);
};

/// Calls `start` with the environment for a program: under `spillway run` with what the command has
/// set, in a trainer that is linked with the core as it is. Any thread, a child of vfork too.
int start_program(const Program& program, Words environment, const Starter& start);

}  // namespace spillway::preload
