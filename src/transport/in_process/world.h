#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "messages.h"
#include "spillway/transport/in_process.h"
#include "turns.h"

namespace spillway::transport {

/// The ranks of a process: their turns, their messages, and who is dead.
class InProcessRanks::World final : private Turns, private Clock {
 public:
  explicit World(const InProcessOptions& options);

  void run(const Body& body);
  void start(std::function<void()> work);
  void work(Duration time);
  const Clock& clock() const { return *this; }

  device::Event send(const Messages::Name& name, device::DeviceSpan bytes);
  device::Event receive(const Messages::Name& name, device::DeviceSpan bytes);
  std::unique_ptr<Notifier> make_notifier(Rank rank, std::optional<Stream> stream);
  [[noreturn]] void abort(Rank rank, const std::string& reason);

 private:
  class RankEvent;
  class RankNotifier;
  class RankTransport;

  TimePoint now() const override;
  TimePoint next_moment_locked() override { return messages_.next_arrival(); }
  void do_due_locked() override { tell_locked(messages_.arrive(now_locked())); }
  void note_end_locked() override { messages_.end_all(reason_locked(), now_locked()); }
  bool is_death(const std::exception_ptr& thrown) const override;

  void count_verb_locked(Rank rank);
  void tell_locked(const std::vector<Messages::News>& news);
  device::Event event_of(Messages::End end, std::string subject);

  const InProcessOptions options_;
  Messages messages_;
  std::vector<std::uint64_t> verbs_;  ///< Of each rank: messages and waits so far.
  std::vector<RankNotifier*> notifiers_;
};

}  // namespace spillway::transport
