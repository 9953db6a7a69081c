#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "spillway/preload/secure_start.h"
#include "spillway/preload/torch_version.h"

namespace spillway::cli {

/// Where the shell would find a program, and whether it may be started.
struct ProgramLookup {
  std::string path;       ///< Empty when nothing of that name exists.
  std::string hindrance;  ///< Why what was found cannot be executed; empty when it can.
};

/// `search_path` is the value of PATH; a name with a slash is taken as it is.
ProgramLookup find_program(const std::string& name, const std::string& search_path);
/// By the PATH of this process.
ProgramLookup find_program(const std::string& name);
/// What to do where nothing of that name exists, for the end of a sentence.
std::string remedy_for_missing(const std::string& name);

enum class ProgramKind {
  kDynamic,  ///< An ELF program that the dynamic loader starts: a preload works.
  kStatic,   ///< An ELF program without a loader: a preload is ignored.
  kForeign,  ///< An ELF program of another word size: a preload is refused by its loader.
  kScript,   ///< Starts with "#!", or is left to the kernel and the shell.
};

/// Facts that the file alone shows.
struct ProgramFile {
  ProgramKind kind = ProgramKind::kScript;
  /// Where it is secure, the loader ignores preloads. A script's is that of its interpreter.
  preload::SecureStart start = preload::SecureStart::kNo;
  bool has_torch_inside = false;  ///< LibTorch was linked in from an archive.
  std::string loader;             ///< Loader of a dynamic program.
};

ProgramFile inspect_program(const std::string& path);

/// Why a run cannot serve a program.
struct Objection {
  std::string reason;  ///< "is statically linked, so nothing can be loaded into it"
  std::string cure;
};

/// Nothing for a program that can be served, as far as its file tells.
std::optional<Objection> objection_to(const ProgramFile& program);

/// What the kernel starts for this file: the interpreter that a script's "#!" names, or a program's
/// loader. Empty when the file names none.
std::string starter_of(const std::string& path);

/// The libtorch_cpu library that a dynamic program is going to load at its start, asked of its own
/// loader; nothing when there is none.
std::optional<std::string> linked_torch(const ProgramFile& program, const std::string& path);

/// The runtime of CUDA (libcudart.so.13, or what an archive names it) that goes with LibTorch's
/// CUDA part, where a dynamic program loads that; else nothing.
std::optional<std::string> linked_cuda_runtime(const ProgramFile& program, const std::string& path);

/// The same for the LibTorch of a folder, which is asked for as this program would load it.
std::optional<std::string> cuda_runtime_of_folder(const std::string& folder);

/// The runtime library of a sanitizer (libasan.so.8 and its kin) that a program is linked with,
/// which has to come before all others; nothing when there is none.
std::optional<std::string> linked_sanitizer(const ProgramFile& program, const std::string& path);

/// Whether a library is such a runtime, by its path or name.
bool is_sanitizer(std::string_view library);

/// The version of a libtorch_cpu.so, from its read-only segments.
preload::TorchVersion torch_version_of_file(const std::string& path);

}  // namespace spillway::cli
