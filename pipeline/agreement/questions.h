#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "packed.h"
#include "spillway/transport/transport.h"

namespace spillway::pipeline {

/// Questions that no program expects, between any two ranks. A thread of each rank answers them,
/// whatever its program does. They are of one size; answers are of any.
class Questions {
 public:
  enum class Kind : std::uint64_t {
    kPosition,     ///< Where are you?
    kLatestCalls,  ///< What have you called?
    kDescription,  ///< What do you do? For people.
    kEnded,        ///< No question: the program has ended.
    kLeaving,      ///< No question, and the last message of its rank.
  };
  struct Question {
    Kind kind = Kind::kLeaving;
    std::array<std::uint64_t, 3> words{};
  };

  /// What others ask is given to it, on the service thread.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// The answer; of what is no question: whatever.
    virtual Packed answer_on_service_thread(Rank from, const Question& question) = 0;
    /// That rank has gone without leaving.
    virtual void lose_on_service_thread(Rank rank, const std::string& error) = 0;
    /// All have left, and have their answers.
    virtual void end_on_service_thread() = 0;
  };

  /// A question that was put. Of the thread that put it.
  class Asked {
   public:
    /// Whether an answer is there, or none will come.
    bool is_done() const { return is_done_; }
    /// Why no answer will come.
    const std::string& error() const { return error_; }
    const Packed& answer() const { return body_; }

   private:
    friend class Questions;
    Rank peer_;
    std::uint64_t number_ = 0;
    bool is_answered_ = false, has_head_ = false, is_done_ = false;
    Question question_;
    std::uint64_t size_ = 0;
    Packed body_;
    device::Event sent_, head_, received_;
    std::string error_;
  };

  using StartThread = std::function<void(std::function<void()>)>;
  /// Answers until all ranks have left. `start_thread` may be empty, as in JobOptions.
  Questions(transport::Transport& transport, Listener& listener, const StartThread& start_thread);
  ~Questions();
  Questions(const Questions&) = delete;
  Questions& operator=(const Questions&) = delete;

  // One thread:
  std::shared_ptr<const Asked> ask(Rank peer, Kind kind, std::array<std::uint64_t, 3> words = {});
  /// Takes in what has come. False: something is still to come.
  bool settle();
  /// No question of this rank follows.
  void leave();
  bool has_ended() const;

 private:
  struct Service;

  void settle(Asked& asked);

  transport::Transport& transport_;
  std::vector<std::uint64_t> numbers_;        ///< Of the next question to each rank.
  std::vector<std::shared_ptr<Asked>> open_;  ///< That have not come to their end.
  std::shared_ptr<Service> service_;
  std::thread thread_;
};

}  // namespace spillway::pipeline
