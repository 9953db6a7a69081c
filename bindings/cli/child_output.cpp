#include "child_output.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::cli {
namespace {

std::string read_to_end(int pipe) {
  std::string text;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t size = ::read(pipe, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

// How the child failed; empty when it did not.
std::string ending_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return message("no exit status: {}", std::strerror(errno));
  if (WIFSIGNALED(status))
    return message("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) return message("exit code {}", WEXITSTATUS(status));
  return {};
}

enum class Errors { kJoined, kDiscarded };

ChildOutcome run_child(const std::vector<std::string>& command, Errors errors) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return {{}, message("no pipe: {}", std::strerror(errno))};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  // A program that asks its user something would wait for an answer.
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  if (errors == Errors::kJoined)
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  else
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const std::vector<char*> arguments = exec_arguments(command);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  ChildOutcome outcome;
  if (error == 0) {
    outcome.output = read_to_end(ends[0]);
    outcome.ending = ending_of(child);
  } else {
    outcome.ending = message("it could not be started: {}", std::strerror(error));
  }
  ::close(ends[0]);
  return outcome;
}

}  // namespace

ChildOutcome outcome_of(const std::vector<std::string>& command) {
  return run_child(command, Errors::kJoined);
}

std::optional<std::string> output_of(const std::vector<std::string>& command) {
  ChildOutcome outcome = run_child(command, Errors::kDiscarded);
  if (!outcome.ending.empty()) return std::nullopt;
  return std::move(outcome.output);
}

std::vector<char*> exec_arguments(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

std::string behind(std::string_view mark, const std::string& output) {
  const auto at = output.find(mark);
  if (at == std::string::npos) return {};
  std::string text = output.substr(at + mark.size());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& letter : text)
    if (letter == '\n') letter = ' ';
  return text;
}

void answer(std::string_view mark, const std::string& text, int code) {
  std::printf("%s%s\n", std::string(mark).c_str(), text.c_str());
  std::fflush(stdout);
  ::_exit(code);
}

std::string last_line(std::string output) {
  while (!output.empty() && output.back() == '\n') output.pop_back();
  const auto begin = output.rfind('\n');
  return begin == std::string::npos ? output : output.substr(begin + 1);
}

}  // namespace spillway::cli
