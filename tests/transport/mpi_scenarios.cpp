// One rank of a job that ends in one way or another, for mpi_test.py: mpi_scenarios NAME [WORDS…].
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "drawn_messages.h"
#include "spillway/transport/mpi.h"

namespace spillway::transport {
namespace {

using Words = std::vector<std::string>;

MpiOptions options_of(const Words& words) {
  MpiOptions options;
  if (!words.empty()) options.library = words[0];
  if (words.size() > 1) options.shims = words[1];
  return options;
}

void say(const std::string& text) {
  std::puts(text.c_str());
  std::fflush(stdout);
}

/// Waits for a message of the next rank that never comes.
void wait_for_ever(Transport& transport) {
  std::vector<std::byte> bytes(8);
  const Rank next((transport.rank().value() + 1) % transport.ranks());
  const device::Outcome outcome = transport.receive(next, value(0), span_of(bytes)).wait();
  say(message("woken: {}", outcome.error));
}

void pass_around(Transport& transport) {
  std::vector<std::byte> out(100000), in(out.size());
  const Rank next((transport.rank().value() + 1) % transport.ranks());
  const Rank before((transport.rank().value() + transport.ranks() - 1) % transport.ranks());
  const device::Event sent = transport.send(next, value(0), span_of(out));
  if (!transport.receive(before, value(0), span_of(in)).wait().succeeded()) std::exit(3);
  if (!sent.wait().succeeded()) std::exit(3);
}

/// WORDS: the library, and the folder of the modules.
void run_ring(const Words& words) {
  const auto transport = make_mpi_transport(options_of(words));
  pass_around(*transport);
  say(message("rank {} of {} by {}", transport->rank(), transport->ranks(),
              transport->job().version));
}

void run_killed(const Words&) {
  const auto transport = make_mpi_transport();
  pass_around(*transport);
  say(message("pid {} rank {};", ::getpid(), transport->rank()));
  wait_for_ever(*transport);
}

void run_abort(const Words&) {
  const auto transport = make_mpi_transport();
  if (transport->rank() == Rank(1)) transport->abort("programs differ");
  wait_for_ever(*transport);
}

/// Rank 1 is late for ever.
void run_late(const Words&) {
  MpiOptions options;
  options.time_limit = std::chrono::milliseconds(500);
  const auto transport = make_mpi_transport(options);
  if (transport->rank() == Rank(1)) transport->make_notifier()->wait();
}

/// Rank 0 sends to rank 1, which has posted nothing; then rank 1 waits for a rank that leaves.
void run_unreceived(const Words&) {
  auto few = drawn_bytes(100, 1);
  auto many = drawn_bytes(100u << 20, 2);
  device::Event sent;
  device::Event never;
  std::vector<std::byte> nothing(8);
  {
    MpiOptions options;
    options.time_limit = std::chrono::minutes(2);  // The large one takes long on a busy machine.
    const auto transport = make_mpi_transport(options);
    if (transport->rank() == Rank(0)) {
      transport->send(Rank(1), value(1), span_of(few));
      sent = transport->send(Rank(1), value(2), span_of(many));
    }
    if (transport->rank() == Rank(1)) {
      never = transport->receive(Rank(2), value(3), span_of(nothing));
      say(message("rank 1: {}", never.wait().error));
    }
  }
  if (!sent.wait().succeeded()) std::exit(3);
}

/// More bytes than an int counts.
void run_large(const Words&) {
  constexpr std::size_t kSize = (2ull << 30) + (65u << 20) + 7;
  const auto transport = make_mpi_transport();
  std::vector<std::uint64_t> words(transport->rank().value() < 2 ? kSize / 8 + 1 : 0);
  const device::DeviceSpan bytes =
      device::host_span(reinterpret_cast<std::byte*>(words.data()), Bytes(kSize));
  const auto word = [](std::size_t i) { return i * 0x9E3779B97F4A7C15ull; };
  if (transport->rank() == Rank(0)) {
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = word(i);
    if (!transport->send(Rank(1), value(0), bytes).wait().succeeded()) std::exit(3);
  } else if (transport->rank() == Rank(1)) {
    if (!transport->receive(Rank(0), value(0), bytes).wait().succeeded()) std::exit(3);
    for (std::size_t i = 0; i < kSize / 8; ++i)
      if (words[i] != word(i)) std::exit(4);
    const std::uint64_t last = word(kSize / 8);
    if (std::memcmp(&words[kSize / 8], &last, kSize % 8) != 0) std::exit(5);
    say("all bytes are right");
  }
}

/// WORDS: the library, and how many threads the program has told MPI of (as a number of MPI's).
void run_own(const Words& words) {
  void* const library = ::dlopen(words.at(0).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error("{}", ::dlerror());
  const auto call = [&]<typename Function>(Function*, const char* name) {
    return reinterpret_cast<Function*>(::dlsym(library, name));
  };
  int level = 0;
  call(static_cast<int (*)(int*, char***, int, int*)>(nullptr), "MPI_Init_thread")(
      nullptr, nullptr, std::atoi(words.at(1).c_str()), &level);
  for (int time = 0; time < 2; ++time) {
    try {
      run_ring({});
    } catch (const Error& error) {
      say(message("refused: {}", error.what()));
    }
  }
  int is_finalised = 0;
  call(static_cast<int (*)(int*)>(nullptr), "MPI_Finalized")(&is_finalised);
  if (is_finalised != 0) std::exit(6);
  if (call(static_cast<int (*)()>(nullptr), "MPI_Finalize")() != 0) std::exit(7);
  say("finalised by the program");
}

const std::map<std::string, void (*)(const Words&)> kScenarios{
    {"ring", run_ring}, {"killed", run_killed},         {"abort", run_abort},
    {"late", run_late}, {"unreceived", run_unreceived}, {"large", run_large},
    {"own", run_own}};

}  // namespace
}  // namespace spillway::transport

int main(int count, char** words) {
  using namespace spillway;
  if (count < 2 || !transport::kScenarios.contains(words[1])) return 2;
  try {
    transport::kScenarios.at(words[1])(transport::Words(words + 2, words + count));
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 9;
  }
  return 0;
}
