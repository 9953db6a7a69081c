#pragma once

#include <string>

namespace spillway {

/// The library that this process has loaded under that name, to be kept; null: it has none.
void* loaded_library(const std::string& name);

/// The same; where there is none, it is looked for as the linker does. Null: `reason` says why.
void* load_library(const std::string& name, std::string& reason);

/// The path of the library, or of the program, that has what lies at `address`; empty: nobody
/// knows.
std::string library_of(const void* address);

/// What `library` has by that name; null: nothing.
void* symbol_in(void* library, const char* name);

/// False where `library` has no function of that name, which is null then.
template <typename Function>
bool find_function(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(symbol_in(library, name));
  return function != nullptr;
}

}  // namespace spillway
