#include "program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "child_output.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {
namespace {

/// A file's bytes, read-only; empty when it cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat facts {};
    if (::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0) {
      const auto size = static_cast<std::size_t>(facts.st_size);
      void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
      if (mapped != MAP_FAILED) {
        data_ = static_cast<const char*>(mapped);
        size_ = size;
      }
    }
    ::close(file);
  }
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return data_; }
  std::size_t size() const { return size_; }

  /// The object at `offset`, or null when it would reach beyond the end.
  template <typename Object>
  const Object* at(std::size_t offset, std::size_t count = 1) const {
    if (offset > size_ || count > (size_ - offset) / sizeof(Object)) return nullptr;
    return reinterpret_cast<const Object*>(data_ + offset);
  }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

// Defined in every LibTorch; undefined in programs that get it from a shared library.
constexpr std::string_view kTorchSymbol =
    "_ZN5torch8autograd23set_default_engine_stubEPFRNS0_6EngineEvE";

std::string hindrance_of(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return std::strerror(errno);
  if (S_ISDIR(facts.st_mode)) return "it is a folder (name a program in it)";
  if (!S_ISREG(facts.st_mode)) return "it is no regular file (name a program)";
  if (::access(path.c_str(), X_OK) != 0) return "it is not executable (chmod +x)";
  return {};
}

bool exists(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

const Elf64_Ehdr* elf_header(const MappedFile& file) {
  const auto* header = file.at<Elf64_Ehdr>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return nullptr;
  return header;
}

std::span<const Elf64_Phdr> segments_of(const MappedFile& file, const Elf64_Ehdr& header) {
  const auto* segments = file.at<Elf64_Phdr>(header.e_phoff, header.e_phnum);
  return {segments, segments == nullptr ? 0U : header.e_phnum};
}

std::string loader_of(const MappedFile& file, const Elf64_Ehdr& header) {
  for (const Elf64_Phdr& segment : segments_of(file, header)) {
    if (segment.p_type != PT_INTERP || segment.p_filesz == 0) continue;
    const auto* name = file.at<char>(segment.p_offset, segment.p_filesz);
    if (name != nullptr) return std::string(name, ::strnlen(name, segment.p_filesz));
  }
  return {};
}

bool table_defines(const MappedFile& file, const Elf64_Shdr& table, const Elf64_Shdr& names,
                   std::string_view wanted) {
  const std::size_t count = table.sh_size / sizeof(Elf64_Sym);
  const auto* symbols = file.at<Elf64_Sym>(table.sh_offset, count);
  const auto* text = file.at<char>(names.sh_offset, names.sh_size);
  if (symbols == nullptr || text == nullptr) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (symbols[i].st_shndx == SHN_UNDEF || symbols[i].st_name >= names.sh_size) continue;
    const std::size_t room = names.sh_size - symbols[i].st_name;
    const char* name = text + symbols[i].st_name;
    if (room > wanted.size() && std::memcmp(name, wanted.data(), wanted.size()) == 0 &&
        name[wanted.size()] == '\0')
      return true;
  }
  return false;
}

bool defines_symbol(const MappedFile& file, const Elf64_Ehdr& header, std::string_view wanted) {
  const auto* sections = file.at<Elf64_Shdr>(header.e_shoff, header.e_shnum);
  for (int i = 0; sections != nullptr && i < header.e_shnum; ++i) {
    const Elf64_Shdr& section = sections[i];
    const bool is_table = section.sh_type == SHT_SYMTAB || section.sh_type == SHT_DYNSYM;
    if (is_table && section.sh_link < header.e_shnum &&
        table_defines(file, section, sections[section.sh_link], wanted))
      return true;
  }
  return false;
}

/// What the program's own loader says of a library whose name begins so.
std::optional<std::string> listed_library(const ProgramFile& program, const std::string& path,
                                          std::string_view name) {
  if (program.kind != ProgramKind::kDynamic) return std::nullopt;
  const auto listing = output_of({program.loader, "--list", path});
  if (!listing) return std::nullopt;
  // "	libtorch_cpu.so => /opt/torch/lib/libtorch_cpu.so (0x00007f…)"
  const auto start = listing->find(name);
  if (start == std::string::npos) return std::nullopt;
  const auto line = std::string_view(*listing).substr(start, listing->find('\n', start) - start);
  const auto arrow = line.find("=> ");
  if (arrow == std::string_view::npos) return std::string(line.substr(0, line.find(" (")));
  const auto target = line.substr(arrow + 3);
  return std::string(target.substr(0, target.rfind(" (")));
}

// Runtimes that are libraries, by gcc and by clang; of the others clang makes archives.
constexpr std::array<std::string_view, 6> kSanitizers{"libasan.so",       "libtsan.so",
                                                      "libhwasan.so",     "libclang_rt.asan",
                                                      "libclang_rt.tsan", "libclang_rt.hwasan"};

bool is_script(const MappedFile& file) {
  return file.size() >= 2 && std::memcmp(file.data(), "#!", 2) == 0;
}

/// What the kernel starts for a script; empty for other files.
std::string interpreter_in(const MappedFile& file) {
  if (!is_script(file)) return {};
  std::string_view line(file.data() + 2, file.size() - 2);
  line = line.substr(0, line.find('\n'));
  const auto begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  line.remove_prefix(begin);
  return std::string(line.substr(0, line.find_first_of(" \t")));
}

constexpr unsigned char kOwnClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

}  // namespace

ProgramLookup find_program(const std::string& name, const std::string& search_path) {
  if (name.find('/') != std::string::npos)
    return exists(name) ? ProgramLookup{name, hindrance_of(name)} : ProgramLookup{};
  ProgramLookup unusable;
  std::string_view rest = search_path;
  while (!name.empty()) {
    const auto colon = rest.find(':');
    std::string path(colon == 0 || rest.empty() ? "." : rest.substr(0, colon));
    path.append("/").append(name);
    if (exists(path)) {
      const std::string hindrance = hindrance_of(path);
      if (hindrance.empty()) return {path, {}};
      if (unusable.path.empty()) unusable = {path, hindrance};
    }
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return unusable;
}

ProgramLookup find_program(const std::string& name) {
  const char* search_path = std::getenv("PATH");
  return find_program(name, search_path == nullptr ? "" : search_path);
}

std::string remedy_for_missing(const std::string& name) {
  if (name.find('/') != std::string::npos)
    return " (name a file that is there; its path starts in the current folder)";
  if (exists("./" + name))
    return message(" (the current folder is not in PATH: did you mean ./{}?)", shell_word(name));
  return " (no folder of PATH has it: name its path)";
}

ProgramFile inspect_program(const std::string& path) {
  ProgramFile program;
  const MappedFile file(path);
  const Elf64_Ehdr* header = elf_header(file);
  if (header == nullptr) {
    const std::string interpreter = interpreter_in(file);
    if (!interpreter.empty()) program.start = preload::secure_start_of(interpreter.c_str());
    return program;
  }
  program.start = preload::secure_start_of(path.c_str());
  if (header->e_ident[EI_CLASS] != kOwnClass) {
    program.kind = ProgramKind::kForeign;
    return program;
  }
  program.loader = loader_of(file, *header);
  program.kind = program.loader.empty() ? ProgramKind::kStatic : ProgramKind::kDynamic;
  program.has_torch_inside = defines_symbol(file, *header, kTorchSymbol);
  return program;
}

// A program that the preload cannot reach would run without its budget, and say nothing.
std::optional<Objection> objection_to(const ProgramFile& program) {
  constexpr const char* kIfItStartsOthers =
      "; or, if it only starts the trainer, put `spillway run` behind it, before the trainer";
  const auto made = [&](std::string reason, const char* cure) {
    return Objection{std::move(reason), std::string(cure) + kIfItStartsOthers};
  };
  if (program.kind == ProgramKind::kStatic)
    return made("is statically linked, so nothing can be loaded into it",
                "build it with shared libraries");
  if (program.kind == ProgramKind::kForeign)
    return made("has another word size than Spillway, so nothing can be loaded into it",
                "build it for 64 bits");
  const std::string its = program.kind == ProgramKind::kScript ? "has an interpreter that " : "";
  switch (program.start) {
    case preload::SecureStart::kNo: break;
    case preload::SecureStart::kOfOtherUser:
      return made(its + "changes its user or group when it starts (set-user-id), and the system "
                        "then loads nothing into it",
                  "start it as that user, or take the mark off it: chmod ug-s");
    case preload::SecureStart::kWithCapabilities:
      return made(its + "gets file capabilities when it starts (getcap shows them), and the system "
                        "then loads nothing into it",
                  "start a copy, which has none, or take them off it: setcap -r");
  }
  if (program.has_torch_inside)
    return Objection{"has LibTorch linked into itself statically; Spillway needs the shared "
                     "libtorch_cpu.so",
                     "link with the shared LibTorch"};
  return std::nullopt;
}

std::string starter_of(const std::string& path) {
  const MappedFile file(path);
  return is_script(file) ? interpreter_in(file) : inspect_program(path).loader;
}

std::optional<std::string> linked_torch(const ProgramFile& program, const std::string& path) {
  return listed_library(program, path, "libtorch_cpu.so");
}

/// Zip archives of LibTorch have it as libcudart-1a2b3c4d.so.13.
std::optional<std::string> listed_cuda_runtime(const ProgramFile& program,
                                               const std::string& path) {
  if (auto found = listed_library(program, path, "libcudart.so.")) return found;
  return listed_library(program, path, "libcudart-");
}

// libtorch_cpu.so of wheels goes with CUDA's runtime, too, for its profiler.
std::optional<std::string> linked_cuda_runtime(const ProgramFile& program,
                                               const std::string& path) {
  if (!listed_library(program, path, "libtorch_cuda.so")) return std::nullopt;
  return listed_cuda_runtime(program, path);
}

std::optional<std::string> cuda_runtime_of_folder(const std::string& folder) {
  const std::string library = folder + "/libtorch_cuda.so";
  if (!exists(library)) return std::nullopt;
  return listed_cuda_runtime(inspect_program("/proc/self/exe"), library);
}

bool is_sanitizer(std::string_view library) {
  const std::string_view name = library.substr(library.rfind('/') + 1);
  return std::any_of(kSanitizers.begin(), kSanitizers.end(),
                     [&](std::string_view start) { return name.substr(0, start.size()) == start; });
}

std::optional<std::string> linked_sanitizer(const ProgramFile& program, const std::string& path) {
  if (program.kind != ProgramKind::kDynamic) return std::nullopt;
  // Compilers name it among what the program itself needs. Asking the loader maps all of that.
  const MappedFile file(path);
  const std::string_view text(file.data(), file.size());
  for (const std::string_view name : kSanitizers)
    if (text.find(name) != std::string_view::npos)
      if (const auto found = listed_library(program, path, name)) return found;
  return std::nullopt;
}

preload::TorchVersion torch_version_of_file(const std::string& path) {
  const MappedFile file(path);
  const Elf64_Ehdr* header = elf_header(file);
  if (header == nullptr) return {};
  for (const Elf64_Phdr& segment : segments_of(file, *header)) {
    if (segment.p_type != PT_LOAD || (segment.p_flags & (PF_W | PF_X)) != 0) continue;
    const auto* bytes = file.at<char>(segment.p_offset, segment.p_filesz);
    if (bytes == nullptr) continue;
    const auto version = preload::find_torch_version(bytes, segment.p_filesz);
    if (version.is_known()) return version;
  }
  const auto version = preload::torch_version_of_name(path.c_str());
  return version.is_known() ? version : preload::torch_version_beside(path.c_str());
}

}  // namespace spillway::cli
