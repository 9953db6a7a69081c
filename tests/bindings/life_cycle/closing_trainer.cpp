// A trainer with the habit of daemons and launchers: it closes whatever it has not opened, in every
// way that there is, before its first step, in the middle of each, and between them, and opens
// files of its own under the numbers that are free then. Its results go to the file `results`; it
// ends with 1 when a file does not hold what it wrote. With an argument it only trains and prints.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int kFirst = 3;
constexpr int kFiles = 20;
constexpr std::string_view kText = "mine\n";

int numbers() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1100));
}

void close_one_by_one() {
  for (int number = kFirst; number < numbers(); ++number) close(number);
}

void close_from() { closefrom(kFirst); }

void close_a_range() { close_range(kFirst, UINT_MAX, 0); }

void close_what_is_listed() {
  DIR* const listed = opendir("/proc/self/fd");
  std::vector<int> open;
  while (const dirent* entry = readdir(listed)) open.push_back(std::atoi(entry->d_name));
  closedir(listed);
  for (const int number : open)
    if (number >= kFirst) close(number);
}

/// All numbers become one file of ours, as a launcher's redirections make them.
void replace_by_copies() {
  const int file = open("replaced", O_CREAT | O_RDWR | O_TRUNC, 0600);
  if (write(file, kText.data(), kText.size()) < 0) std::perror("write");
  for (int number = kFirst; number < numbers(); ++number)
    if (number != file) dup2(file, number);
}

/// Past the C library and whatever stands in front of it.
long raw_call(long number, long first, long second, long third) {
#if defined(__x86_64__)
  long result = 0;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(first), "S"(second), "d"(third)
               : "rcx", "r11", "memory");
  return result;
#else
  return syscall(number, first, second, third);
#endif
}

void close_by_system_calls() { raw_call(SYS_close_range, kFirst, UINT_MAX, 0); }

constexpr std::array kWays{close_by_system_calls, close_one_by_one,     close_from,
                           close_a_range,         close_what_is_listed, replace_by_copies};

class OwnFiles {
 public:
  void open_again() {
    files_.clear();
    for (int i = 0; i < kFiles; ++i) {
      const std::string name = "mine_" + std::to_string(i);
      files_.push_back(open(name.c_str(), O_CREAT | O_RDWR | O_TRUNC, 0600));
      if (write(files_.back(), kText.data(), kText.size()) < 0) std::perror("write");
    }
  }

  bool are_right() const {
    struct stat replaced {};
    const auto size = static_cast<off_t>(kText.size());
    if (stat("replaced", &replaced) == 0 && replaced.st_size != size) return false;
    return std::all_of(files_.begin(), files_.end(), [&](int file) {
      struct stat facts {};
      std::string text(kText.size(), ' ');
      return fstat(file, &facts) == 0 && facts.st_size == size &&
             pread(file, text.data(), text.size(), 0) == size && text == kText;
    });
  }

 private:
  std::vector<int> files_;
};

void require(const OwnFiles& files, const char* when, int step) {
  if (files.are_right()) return;
  std::fprintf(stderr, "a file of the program was written to %s, step %d\n", when, step);
  std::exit(1);
}

}  // namespace

int main(int count, char** /*words*/) {
  at::set_num_threads(1);
  const bool closes = count == 1;
  OwnFiles files;
  const auto close_and_open = [&](int step) {
    if (!closes) return;
    kWays[static_cast<std::size_t>(step) % kWays.size()]();
    files.open_again();
  };
  close_and_open(0);
  std::string results;
  const auto weight = torch::full({1 << 19}, 1.5).requires_grad_();  // 2 MiB, as all tensors here
  for (int step = 0; step < static_cast<int>(kWays.size()); ++step) {
    auto value = weight * 1.0;
    std::vector<at::Tensor> kept;
    for (int layer = 0; layer < 12; ++layer) {
      kept.push_back((value * 1.01).tanh());
      value = value + kept.back();
      if (layer == 6) close_and_open(step);
    }
    value.sum().backward();
    double sum = 0;
    for (const at::Tensor& one : kept) sum += one.sum().item<double>();
    char line[128];
    std::snprintf(line, sizeof line, "step %d %a %a\n", step, sum,
                  weight.grad().sum().item<double>());
    results += line;
    std::printf("%s", line);  // Perhaps to a number that was free when the program began.
    std::fflush(stdout);
    require(files, "in the middle", step);
    close_and_open(step + 1);
    require(files, "between steps", step);
  }
  std::ofstream("results") << results;
  require(files, "at the end", static_cast<int>(kWays.size()));
}
