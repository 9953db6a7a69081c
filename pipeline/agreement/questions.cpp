#include "questions.h"

#include <pthread.h>

#include <list>
#include <mutex>
#include <utility>

#include "spillway/base/signals_blocked.h"

namespace spillway::pipeline {
namespace {

using transport::Stream;
using transport::Tag;

/// The n-th question of a rank to another one has three messages.
Tag question_tag(std::uint64_t number) { return {Stream::kRequests, 3 * number}; }
Tag head_tag(std::uint64_t number) { return {Stream::kRequests, 3 * number + 1}; }
Tag body_tag(std::uint64_t number) { return {Stream::kRequests, 3 * number + 2}; }

bool is_answered(Questions::Kind kind) {
  using enum Questions::Kind;
  return kind == kPosition || kind == kLatestCalls || kind == kDescription;
}

}  // namespace

/// What the service thread works on. It may outlive the questions, and touches nothing else once
/// `is_closed`.
struct Questions::Service {
  struct Peer {
    Rank rank;
    std::uint64_t number = 0;  ///< Of its next question.
    Question question;
    device::Event received;
    bool has_gone = false;
  };
  struct Reply {
    std::uint64_t size = 0;
    Packed body;
    device::Event head_sent, body_sent;
  };

  Service(transport::Transport& its_transport, Listener& its_listener)
      : transport(its_transport),
        listener(its_listener),
        notifier(transport.make_notifier(Stream::kRequests)),
        peers(transport.ranks()) {
    for (std::uint32_t i = 0; i < transport.ranks(); ++i) {
      peers[i].rank = Rank(i);
      peers[i].has_gone = peers[i].rank == transport.rank();
      if (!peers[i].has_gone) expect(peers[i]);
    }
  }

  void expect(Peer& peer) {
    peer.received = transport.receive(peer.rank, question_tag(peer.number),
                                      device::host_span_of(peer.question));
  }

  void run() {
    while (!is_closed.load()) {
      bool have_all_gone = true;
      for (Peer& peer : peers) {
        while (!peer.has_gone && peer.received.is_done()) take(peer);
        have_all_gone &= peer.has_gone;
      }
      std::erase_if(replies, [](const Reply& reply) {
        return reply.head_sent.is_done() && reply.body_sent.is_done();
      });
      if (have_all_gone && replies.empty()) {
        has_ended.store(true);
        return listener.end_on_service_thread();
      }
      notifier->wait();
    }
  }

  void take(Peer& peer) {
    const device::Outcome outcome = peer.received.wait();
    if (!outcome.succeeded()) {
      peer.has_gone = true;
      return listener.lose_on_service_thread(peer.rank, outcome.error);
    }
    const Question question = peer.question;
    const std::uint64_t number = peer.number++;
    peer.has_gone = question.kind == Kind::kLeaving;
    if (!peer.has_gone) expect(peer);
    Packed body = listener.answer_on_service_thread(peer.rank, question);
    if (!is_answered(question.kind)) return;
    Reply& reply = replies.emplace_back();
    reply.size = body.size();
    reply.body = std::move(body);
    reply.head_sent = transport.send(peer.rank, head_tag(number), device::host_span_of(reply.size));
    reply.body_sent = transport.send(peer.rank, body_tag(number), span_of(reply.body));
  }

  transport::Transport& transport;
  Listener& listener;
  const std::unique_ptr<transport::Notifier> notifier;
  std::vector<Peer> peers;
  std::list<Reply> replies;
  std::atomic<bool> is_closed{false}, has_ended{false};
};

Questions::Questions(transport::Transport& transport, Listener& listener,
                     const StartThread& start_thread)
    : transport_(transport),
      numbers_(transport.ranks()),
      service_(std::make_shared<Service>(transport, listener)) {
  const auto run = [service = service_] { service->run(); };
  if (start_thread) {
    start_thread(run);
    return;
  }
  const SignalsBlocked blocked;
  thread_ = std::thread([run] {
    ::pthread_setname_np(::pthread_self(), "spillway-job");
    try {
      run();
    } catch (const transport::TransportError&) {
      // The job has ended, which the program hears from its own waits.
    }
  });
}

Questions::~Questions() {
  service_->is_closed.store(true);
  service_->notifier->notify();
  if (!thread_.joinable()) return;
  thread_.join();
  if (service_->has_ended.load() && open_.empty()) return;
  // Its messages are still expected, and nobody can call them back.
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>();
  const std::lock_guard lock(mutex);
  kept.push_back(service_);
  kept.insert(kept.end(), open_.begin(), open_.end());
}

std::shared_ptr<const Questions::Asked> Questions::ask(Rank peer, Kind kind,
                                                       std::array<std::uint64_t, 3> words) {
  const auto asked = std::make_shared<Asked>();
  asked->peer_ = peer;
  asked->number_ = numbers_[peer.value()]++;
  asked->is_answered_ = is_answered(kind);
  asked->question_ = {kind, words};
  open_.push_back(asked);
  if (asked->is_answered_)
    asked->head_ =
        transport_.receive(peer, head_tag(asked->number_), device::host_span_of(asked->size_));
  asked->sent_ =
      transport_.send(peer, question_tag(asked->number_), device::host_span_of(asked->question_));
  return asked;
}

void Questions::settle(Asked& asked) {
  const auto note = [&asked](const device::Event& event) {
    const device::Outcome outcome = event.wait();
    if (asked.error_.empty()) asked.error_ = outcome.error;
    return outcome.succeeded();
  };
  if (asked.is_answered_ && !asked.has_head_) {
    if (!asked.head_.is_done()) return;
    asked.has_head_ = true;
    if (note(asked.head_)) {
      asked.body_.resize(asked.size_);
      asked.received_ =
          transport_.receive(asked.peer_, body_tag(asked.number_), span_of(asked.body_));
    }
  }
  if (!asked.sent_.is_done() || !asked.received_.is_done()) return;
  note(asked.sent_);
  note(asked.received_);
  asked.is_done_ = true;
}

bool Questions::settle() {
  for (const auto& asked : open_) settle(*asked);
  std::erase_if(open_, [](const auto& asked) { return asked->is_done(); });
  return open_.empty();
}

void Questions::leave() {
  for (std::uint32_t i = 0; i < transport_.ranks(); ++i)
    if (Rank(i) != transport_.rank()) ask(Rank(i), Kind::kLeaving);
}

bool Questions::has_ended() const { return service_->has_ended.load(); }

}  // namespace spillway::pipeline
