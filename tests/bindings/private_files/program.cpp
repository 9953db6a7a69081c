// Uses files in every way that trainers do, in the folder that it is started in, and prints what it
// sees: the same whether its files are its own or everybody's. private_files_test.py makes the
// folder.

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return "cannot be opened: " + std::string(std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& text, std::ios::openmode mode = {}) {
  std::ofstream file(path, mode | std::ios::out);
  file << text;
  file.close();
  std::cout << "write " << path << ": " << file.good() << "\n";
}

std::string outcome(long result) {
  return result >= 0 ? "well" : std::string(std::strerror(errno));
}

void tell(const std::string& what, long result) {
  std::cout << what << ": " << outcome(result) << "\n";
}

void show(const std::string& path) { std::cout << path << " = " << text_of(path); }

void list(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::error_code ignored;
    const char* kind = entry.is_symlink(ignored) ? "@" : entry.is_directory(ignored) ? "/" : "";
    names.push_back(entry.path().filename().string() + kind);
  }
  std::sort(names.begin(), names.end());
  std::cout << folder << ":";
  for (const std::string& name : names) std::cout << " " << name;
  std::cout << (error ? " " + error.message() : std::string()) << "\n";
}

void facts(const std::string& path) {
  struct stat found {};
  const int result = ::lstat(path.c_str(), &found);
  std::cout << path << " is " << outcome(result);
  if (result == 0)
    std::cout << " " << std::oct << found.st_mode << std::dec << " "
              << (S_ISDIR(found.st_mode) ? 0 : found.st_size);
  std::cout << "\n";
}

void streams() {
  write("new", "one\n");
  show("new");
  write("new", "two\n", std::ios::app);
  show("new");
  write("log", "appended\n", std::ios::app);
  show("log");
  write("data", "cut\n", std::ios::trunc);
  show("data");
  {
    std::fstream file("page", std::ios::in | std::ios::out);
    file.seekp(2);
    file << "XX";
  }
  show("page");
  write("nowhere/new", "");
  FILE* file = std::fopen("stdio", "wx");
  std::fputs("stdio\n", file);
  std::fclose(file);
  tell("again", std::fopen("stdio", "wx") == nullptr ? -1 : 0);
  file = std::freopen("log", "r+", std::fopen("stdio", "a"));
  std::fputs("Over", file);
  std::fclose(file);
  show("log");
  list(".");
}

void descriptors() {
  const int made = ::open("opened", O_RDWR | O_CREAT | O_EXCL, 0640);
  tell("open", made);
  tell("write", ::write(made, "12345\n", 6));
  void* seen = ::mmap(nullptr, 6, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
  std::memcpy(seen, "map", 3);
  ::munmap(seen, 6);
  ::close(made);
  show("opened");
  facts("opened");
  tell("open again", ::open("opened", O_WRONLY | O_CREAT | O_EXCL, 0640));
  tell("open what is not there", ::open("absent", O_RDWR));
  tell("open a folder", ::open("sub", O_WRONLY));
  tell("open below a file", ::open("opened/x", O_RDONLY));
  tell("truncate", ::truncate("page", 3));
  show("page");
  std::cout << "\n";
  const int folder = ::open("sub", O_RDONLY | O_DIRECTORY);
  tell("openat", ::openat(folder, "made", O_CREAT | O_WRONLY, 0600));
  tell("unlinkat", ::unlinkat(folder, "inner", 0));
  tell("mkdirat", ::mkdirat(folder, "deep", 0755));
  tell("renameat", ::renameat(folder, "made", folder, "deep/made"));
  list("sub");
  list("sub/deep");
  char name[] = "temporary-XXXXXX.bin";
  const int temporary = ::mkstemps(name, 4);
  tell("mkstemps", temporary);
  tell("fill it", ::write(temporary, "t\n", 2));
  tell("rename it", ::rename(name, "sub/kept"));
  show("sub/kept");
  const int nameless = ::open(".", O_TMPFILE | O_RDWR, 0600);
  tell("fill a nameless one", ::write(nameless, "named\n", 6));
  const std::string link = "/proc/self/fd/" + std::to_string(nameless);
  tell("name it", ::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
  show("named");
}

void names() {
  tell("rename a file that was there", ::rename("old", "older"));
  show("older");
  show("old");
  tell("rename over another", ::rename("older", "data"));
  show("data");
  write("data", "more\n", std::ios::app);
  show("data");
  tell("rename a folder that was there", ::rename("tree", "sub/tree"));
  list("sub/tree");
  list("tree");
  show("sub/tree/branch/leaf");
  tell("rename a folder into itself", ::rename("sub", "sub/tree/sub"));
  tell("rename a folder over a full one", ::rename("empty", "sub"));
  tell("rename a file over a folder", ::rename("data", "sub"));
  tell("rename what is not there", ::rename("absent", "x"));
  tell("rename to nowhere", ::rename("data", "nowhere/data"));
  tell("unlink", ::unlink("log"));
  facts("log");
  tell("unlink again", ::unlink("log"));
  tell("unlink a folder", ::unlink("sub"));
  tell("remove a full folder", ::rmdir("sub"));
  tell("remove an empty folder", ::rmdir("empty"));
  tell("make it again", ::mkdir("empty", 0700));
  facts("empty");
  tell("make it twice", ::mkdir("empty", 0700));
  tell("make one in nowhere", ::mkdir("nowhere/x", 0700));
  std::error_code error;
  std::cout << "removed " << fs::remove_all("sub", error) << " " << error.message() << "\n";
  list(".");
  tell("make it again", ::mkdir("sub", 0755));
  list("sub");
  std::cout << "made " << fs::create_directories("a/b/c", error) << "\n";
  fs::copy_file("data", "a/b/c/data", error);
  show("a/b/c/data");
  fs::rename("a/b", "b", error);
  list("b/c");
}

void links() {
  show("link");
  write("link", "through the link\n", std::ios::app);
  show("target");
  facts("link");
  tell("symlink", ::symlink("target", "own-link"));
  show("own-link");
  tell("link", ::link("target", "hard"));
  write("hard", "both\n", std::ios::app);
  show("target");
  char text[256] = {};
  tell("readlink", ::readlink("own-link", text, sizeof text));
  std::cout << text << "\n";
  tell("readlink of a file", ::readlink("target", text, sizeof text));
  tell("unlink a link", ::unlink("link"));
  show("target");
  std::cout << fs::relative(fs::canonical("own-link"), fs::current_path()) << "\n";
  tell("symlink to itself", ::symlink("loop", "loop"));
  show("loop");
  std::cout << "\n";
}

void marks() {
  tell("chmod", ::chmod("target", 0600));
  facts("target");
  const timeval times[] = {{1000, 0}, {2000, 0}};
  tell("utimes", ::utimes("target", times));
  struct stat found {};
  tell("stat", ::stat("target", &found));
  std::cout << found.st_mtim.tv_sec << "\n";
  tell("access", ::access("target", R_OK | W_OK));
  tell("access", ::access("absent", F_OK));
  tell("chdir", ::chdir("sub"));
  write("here", "here\n");
  std::cout << fs::current_path().filename() << "\n";
  tell("chdir", ::chdir(".."));
  show("sub/here");
  show("sub/../sub/./here");
  std::cout << fs::exists("sub/here") << fs::exists("sub/there") << fs::file_size("sub/here")
            << "\n";
}

void entries() {
  DIR* folder = ::opendir("mixed");
  write("mixed/new", "");
  ::unlink("mixed/two");
  ::closedir(folder);
  folder = ::opendir("mixed");
  std::vector<std::string> seen;
  while (const dirent* entry = ::readdir(folder)) seen.emplace_back(entry->d_name);
  ::rewinddir(folder);
  std::size_t again = 0;
  while (::readdir(folder) != nullptr) ++again;
  ::closedir(folder);
  std::sort(seen.begin(), seen.end());
  for (const std::string& name : seen) std::cout << name << " ";
  std::cout << again << "\n";
  dirent** list = nullptr;
  const int count = ::scandir(
      "mixed", &list, [](const dirent* entry) { return entry->d_name[0] == '.' ? 0 : 1; },
      ::alphasort);
  for (int i = 0; i < count; ++i) {
    std::cout << list[i]->d_name << " ";
    std::free(list[i]);
  }
  std::free(list);
  glob_t found{};
  tell("glob", ::glob("mix*/*", 0, nullptr, &found));
  for (std::size_t i = 0; i < found.gl_pathc; ++i) std::cout << found.gl_pathv[i] << " ";
  ::globfree(&found);
  tell("glob of nothing", ::glob("mix*/two", 0, nullptr, &found) == GLOB_NOMATCH ? 0 : -1);
  std::size_t all = 0;
  for ([[maybe_unused]] const auto& entry : fs::recursive_directory_iterator(".")) ++all;
  std::cout << all << " in all\n";
}

void child() {
  std::cout << std::flush;
  const int code = std::system("echo more >> target; cat target; mv target moved; ls");
  std::cout << code << "\n";
  show("moved");
}

}  // namespace

int main() {
  streams();
  descriptors();
  names();
  links();
  marks();
  entries();
  child();
}
