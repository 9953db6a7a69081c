#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "alarm.h"
#include "spillway/runtime/learning/step_guide.h"
#include "spillway/runtime/runtime.h"

namespace spillway::runtime {

/// The cost of interception is measured on one operator of this number.
inline constexpr std::uint64_t kSampleEvery = 64;

/// State of an operator that needs more than the budget and is paged through.
struct Runtime::Oversize {
  Bytes moved_before;                      ///< By all transfers until then.
  Bytes written_before;                    ///< Part of it: to the store.
  Bytes may_move;                          ///< Then the process ends.
  std::unique_ptr<Alarm> alarm = nullptr;  ///< Looks at that.
};

/// Time in which an operator did not run, and what was moved meanwhile.
struct Runtime::Wait {
  Duration time{0};
  Bytes moved;

  Wait& operator+=(const Wait& other) {
    time += other.time;
    moved += other.moved;
    return *this;
  }
};

/// The operator of one thread.
struct Runtime::OpContext {
  struct Born {
    StorageId storage;
    std::uint32_t pages;        ///< Of those that `inside_pages` counts.
    std::uint32_t peak_before;  ///< `inside_peak` until then.
  };
  bool is_running = false;
  bool learns = false;           ///< The learner was told of the running operator.
  bool fills = true;             ///< The running operator touches what it allocates.
  bool makes_blanks = false;     ///< And leaves the rest to the trainer.
  bool rehearses = false;        ///< See Runtime::Rehearsal.
  bool ran_out_of_room = false;  ///< In the latest rehearsal.
  Wait replay_wait;              ///< For pages or room, of the operator that runs again.
  bool has_replayed = false;     ///< It did run, and was not left out as needless.
  bool fills_on_host = false;    ///< What it allocates: see HostWorkspace.
  bool replays = false;          ///< The running operator is none of the trainer's: it runs again.
  bool is_beside = false;        ///< The same: see OpTraits.
  StepGuide::Wish wish;
  bool has_orders = false;  ///< Those of `wish` are still to be followed.
  /// Once; null: there are none.
  const swap::ResidencyOrders* take_orders() {
    return std::exchange(has_orders, false) ? &wish.orders : nullptr;
  }
  std::vector<StorageId> to_record_writes;  ///< What the operator writes that is to be recorded.
  std::uint64_t signature = 0;
  AutogradFacts autograd;
  const OpText* text = nullptr;
  std::unique_ptr<Oversize> oversize;  ///< None: it fits so far.
  std::exception_ptr room_failure;     ///< Thrown while an operator ran again.
  swap::PinSet pins;
  swap::MissingPages missing;            ///< Scratch: per use of the running operator.
  std::vector<RangeUse> all_uses;        ///< Scratch: with those of shared pages.
  std::vector<StorageId> shared_inputs;  ///< Shared pages that are counted as inputs.
  std::vector<StorageId> shared;   ///< Shared pages that hold what the operator has allocated.
  std::vector<RangeUse> operands;  ///< On a device, and for LastUses.
  std::vector<StorageId> inside;   ///< Ranges born in the running operator and still alive.
  std::vector<Born> born;          ///< The same, filled or not, on other devices than the host.
  std::uint32_t input_pages = 0;
  std::uint32_t inside_pages = 0;
  std::uint32_t inside_peak = 0;
  std::string need_name;  ///< Empty: others needed as much.
  struct Refused {
    std::uint64_t need = 0;    ///< In pages, as noted; 0: it was not refused.
    std::uint64_t before = 0;  ///< The largest need of others until then.
    std::string name_before;   ///< Whose.
  };
  Refused refused;
  std::uint64_t ops = 0;
  /// The operator that begins has allocated nothing so far.
  void begin_allocations() {
    inside.clear();
    born.clear();
    shared.clear();
    shared_inputs.clear();
    need_name.clear();
    refused.need = 0;
    inside_pages = inside_peak = input_pages = 0;
  }
  std::string name() const {
    return text != nullptr ? text->describe() : "an allocation of the trainer";
  }
  /// What is asked for memory now, as long as the program runs: an operator by its signature; 0:
  /// none.
  std::uint64_t place() const { return is_running ? signature : 0; }
  /// Does what needs room in a rehearsal, and tells nobody else where there is none.
  template <typename Action>
  void rehearse(const Action& action) {
    try {
      action();
    } catch (const swap::NoRoomError&) {
      ran_out_of_room = true;
      throw;
    } catch (const swap::StoreError&) {
      ran_out_of_room = true;
      throw;
    }
  }
  TimePoint sampled_since{};  ///< Of the announced or running operator; 0: it is not measured.
};

/// The operators of one thread, by the number of the runtime.
struct Runtime::OpContexts {
  std::array<OpContext, kMostRuntimes> of;
};

/// Does what needs room: `asked` pages beside those that the running operator has.
template <typename Action>
void Runtime::with_room(OpContext& op, std::uint64_t asked, const Action& action) {
  try {
    check_oversize(op, asked);
    try {
      action();
      return;
    } catch (const swap::NoRoomError& error) {
      page_through(op, need_of(op, error, asked));
    }
    try {
      action();
    } catch (const swap::NoRoomError& error) {
      refuse_oversize(op, need_of(op, error, asked));  // Not even page by page.
    }
  } catch (const Error& error) {
    // Nobody may have asked for what runs again: whoever cannot go on without it tells.
    if (op.replays) {
      op.room_failure = std::current_exception();
    } else {
      note_refusal(error, op.name(), op.place());
    }
    throw;
  }
}

}  // namespace spillway::runtime
