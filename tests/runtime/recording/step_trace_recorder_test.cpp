// What a trace shows: single calls under a clock that stands still, and a small trainer with a real
// engine.
#include "spillway/runtime/recording/step_trace_recorder.h"

#include <gmock/gmock.h>

#include <array>
#include <cerrno>
#include <map>
#include <set>
#include <thread>

#include "spillway/memory/host_pages.h"
#include "spillway/runtime/recording/storage_pieces.h"
#include "spillway/runtime/runtime.h"
#include "store/ram/factory.h"
#include "support/best_mapper.h"
#include "support/forwarding_store.h"
#include "support/golden_part.h"
#include "support/manual_clock.h"
#include "support/timed_stream.h"

namespace spillway::runtime {
namespace {

using memory::kPageBytes;

/// Pieces that are all of the storage in the slot of their number.
StorageId as_storage(PieceId piece) { return {piece.value(), 0}; }

using memory::kPageSize;
using profile::StepTrace;
using profile::TraceSpan;
using swap::Direction;
using testing::ElementsAre;

class Text final : public OpText {
 public:
  explicit Text(std::string text) : text_(std::move(text)) {}
  std::string describe() const override { return text_; }

 private:
  std::string text_;
};

std::string fact(const TraceSpan& span, std::string_view name) {
  for (const auto& [key, value] : span.facts)
    if (key == name) return value;
  return {};
}

/// "mm 3+2" for a span that begins after 3 ms and takes 2.
std::vector<std::string> drawing(const StepTrace& trace, std::string_view lane) {
  std::vector<std::string> spans;
  for (const TraceSpan& span : trace.spans)
    if (span.lane == lane)
      spans.push_back(message("{} {}+{}", span.name, std::lround(1e3 * span.begin_seconds),
                              std::lround(1e3 * span.seconds)));
  return spans;
}

class StepTraceRecorderTest : public testing::Test {
 protected:
  void pass(int milliseconds) { clock_.advance(std::chrono::milliseconds(milliseconds)); }

  void op(const std::string& text, int milliseconds, bool is_planned = true) {
    recorder_->begin_op(me_, std::hash<std::string>()(text), Text(text));
    pass(milliseconds);
    recorder_->end_op(me_, is_planned, Bytes(4096));
  }
  void wait(StallLedger::Reason reason, int milliseconds) {
    pass(milliseconds);
    recorder_->waited(me_, reason, std::chrono::milliseconds(milliseconds));
  }
  swap::Transfer transfer(Direction direction, std::uint64_t tag) {
    return {direction, {}, nullptr, kPageBytes, tag};
  }
  void begin(Direction direction, std::uint64_t tag, std::uint32_t range, bool is_awaited = false) {
    recorder_->begin_transfer(transfer(direction, tag), StorageId(range, 0), is_awaited,
                              clock_.now());
  }
  void end(Direction direction, std::initializer_list<std::uint64_t> tags, int error = 0) {
    std::vector<swap::TransferResult> results;
    for (const std::uint64_t tag : tags) results.push_back({transfer(direction, tag), error, {}});
    recorder_->end_transfers(results, clock_.now(), Bytes(8192));
  }
  StepTrace trace() const { return recorder_->trace("net").trace; }
  std::vector<std::string> compute() const { return drawing(trace(), profile::kComputeLane); }

  ManualClock clock_;
  const int thread_ = 0;
  const void* const me_ = &thread_;
  std::unique_ptr<StepTraceRecorder> recorder_ =
      std::make_unique<StepTraceRecorder>(StepTraceRecorder::Options{}, clock_);
};

TEST_F(StepTraceRecorderTest, ShowsOperatorsInOrderAndNumbersThoseThatPlansCount) {
  recorder_->begin_step(me_, 7);
  op("mm(float[2])", 3);
  pass(1);
  op("empty()", 1, /*is_planned=*/false);
  op("add(float[3])", 2);
  recorder_->begin_step(me_, 8);
  const StepTrace made = trace();
  EXPECT_EQ(made.title, "measured: net (step 7)");
  EXPECT_NE(made.process, StepTrace().process) << "it can lie beside the predicted one";
  EXPECT_THAT(drawing(made, profile::kComputeLane), ElementsAre("mm 0+3", "empty 4+1", "add 5+2"));
  EXPECT_EQ(fact(made.spans[0], "operator"), "0");
  EXPECT_EQ(fact(made.spans[0], "arguments"), "float[2]");
  EXPECT_EQ(fact(made.spans[1], "operator"), "");
  EXPECT_EQ(fact(made.spans[2], "operator"), "1");
  EXPECT_EQ(fact(made.spans[2], "step"), "7");
}

TEST_F(StepTraceRecorderTest, SplitsAnOperatorThatWaitsForRoomAndPutsWaitsForInputsBeforeIt) {
  recorder_->begin_step(me_, 1);
  recorder_->begin_op(me_, 1, Text("mm(x)"));
  wait(StallLedger::Reason::kInputs, 2);
  pass(3);
  wait(StallLedger::Reason::kRoom, 4);
  pass(5);
  recorder_->end_op(me_, true, Bytes());
  recorder_->begin_step(me_, 2);
  const StepTrace made = trace();
  EXPECT_THAT(drawing(made, profile::kComputeLane),
              ElementsAre("wait 0+2", "mm 2+3", "wait for room 5+4", "mm 9+5"));
  ASSERT_EQ(made.spans.size(), 4u);
  EXPECT_EQ(fact(made.spans[0], "before"), "mm (x)");
  EXPECT_EQ(fact(made.spans[2], "in"), "mm (x)");
  EXPECT_EQ(fact(made.spans[1], "part"), "");
  EXPECT_EQ(fact(made.spans[3], "part"), "goes on after a wait");
  for (const std::size_t piece : {1u, 3u}) EXPECT_EQ(fact(made.spans[piece], "operator"), "0");
  GoldenPart().add(recorder_->trace("net").summary);
}

TEST_F(StepTraceRecorderTest, PassesOverWaitsThatAreOnlyTheCostOfALook) {
  recorder_->begin_step(me_, 1);
  recorder_->begin_op(me_, 1, Text("mm(x)"));
  const Duration look = StallLedger::kNoticeable - Duration(1);
  clock_.advance(look);
  recorder_->waited(me_, StallLedger::Reason::kInputs, look);
  pass(3);
  recorder_->end_op(me_, true, Bytes());
  recorder_->begin_step(me_, 2);
  EXPECT_THAT(compute(), ElementsAre("mm 0+3"));
}

TEST_F(StepTraceRecorderTest, MarksOperatorsThatRunAgain) {
  recorder_->begin_step(me_, 1);
  recorder_->begin_op(me_, 1, Text("relu(x)"));
  recorder_->kept_op(me_, 41);
  recorder_->end_op(me_, true, Bytes());
  op("mm(x)", 2);
  recorder_->begin_replay(me_, 41);
  pass(1);
  recorder_->end_op(me_, false, Bytes());
  op("mm(x)", 2);
  recorder_->begin_step(me_, 2);
  const StepTrace made = trace();
  EXPECT_THAT(drawing(made, profile::kComputeLane),
              ElementsAre("mm 0+2", "recomputed: relu 2+1", "mm 3+2"));
  EXPECT_EQ(fact(made.spans[1], "operator"), "41");
  EXPECT_EQ(fact(made.spans[2], "operator"), "2") << "replays have no number of their own";
  GoldenPart().add(recorder_->trace("net").summary);
}

TEST_F(StepTraceRecorderTest, KeepsTheLatestWholeSteps) {
  for (std::uint64_t step = 1; step <= 6; ++step) {
    recorder_->begin_step(me_, step);
    op("op" + std::to_string(step) + "()", 10);
  }
  EXPECT_THAT(compute(), ElementsAre("op3 0+10", "op4 10+10", "op5 20+10"));
  EXPECT_EQ(trace().title, "measured: net (steps 3 to 5)");
}

TEST_F(StepTraceRecorderTest, ForgetsWholeStepsWhenTheyAreTooLong) {
  recorder_ = std::make_unique<StepTraceRecorder>(
      StepTraceRecorder::Options{.steps = 3, .most_events = 7}, clock_);
  for (std::uint64_t step = 1; step <= 4; ++step) {
    recorder_->begin_step(me_, step);
    op("first()", 1);
    op("second()", 1);
  }
  EXPECT_EQ(trace().title, "measured: net (steps 2 to 3)");
  EXPECT_THAT(compute(), ElementsAre("first 0+1", "second 1+1", "first 2+1", "second 3+1"));
}

TEST_F(StepTraceRecorderTest, ShowsWhatThereIsWhereNoStepEnds) {
  pass(5);
  op("mm()", 2);
  EXPECT_THAT(compute(), ElementsAre("mm 0+2"));
  EXPECT_EQ(trace().title, "measured: net (no whole step)");
  recorder_ = std::make_unique<StepTraceRecorder>(StepTraceRecorder::Options{}, clock_);
  EXPECT_THAT(compute(), ElementsAre());
}

TEST_F(StepTraceRecorderTest, ShowsTheThreadThatBeganTheStepAndCountsOthers) {
  op("load()", 1);
  const int other = 0;
  recorder_->begin_step(&other, 1);
  op("theirs()", 1);
  recorder_->begin_op(&other, 3, Text("ours()"));
  pass(2);
  recorder_->end_op(me_, true, Bytes());
  recorder_->end_op(&other, true, Bytes());
  recorder_->begin_step(&other, 2);
  EXPECT_THAT(compute(), ElementsAre("ours 1+2"));
  GoldenPart().add(recorder_->trace("net").summary);
}

TEST_F(StepTraceRecorderTest, ShowsEachTransferFromTheEndOfTheOneBefore) {
  recorder_->allocated(me_, StorageId(0, 0), Bytes(2 * kPageBytes));
  recorder_->allocated(me_, StorageId(1, 0), Bytes(kPageBytes));
  recorder_->begin_step(me_, 1);
  begin(Direction::kWrite, 10, 0);
  pass(1);
  begin(Direction::kWrite, 11, 1);
  begin(Direction::kRead, 20, 5, /*is_awaited=*/true);
  pass(1);
  end(Direction::kWrite, {11});
  pass(2);
  end(Direction::kWrite, {10});
  end(Direction::kRead, {20});
  pass(3);
  begin(Direction::kWrite, 10, 0);
  begin(Direction::kWrite, 11, 1);
  pass(4);
  end(Direction::kWrite, {10, 11});
  recorder_->begin_step(me_, 2);
  const StepTrace made = trace();
  EXPECT_THAT(drawing(made, profile::kWriteOutLane),
              ElementsAre("storage 2 0+2", "storage 1 2+2", "storage 1 7+2", "storage 2 9+2"))
      << "together all the time in which something was written";
  EXPECT_THAT(drawing(made, profile::kReadInLane), ElementsAre("a storage 1+3"));
  for (const TraceSpan& span : made.spans)
    EXPECT_EQ(fact(span, "awaited") != "", span.lane == profile::kReadInLane);
}

TEST_F(StepTraceRecorderTest, JoinsTransfersOfAStorageAndTellsFailedOnesApart) {
  recorder_->begin_op(me_, 1, Text("conv(x)"));
  recorder_->allocated(me_, StorageId(0, 0), Bytes(3 * kPageBytes));
  recorder_->end_op(me_, true, Bytes());
  recorder_->begin_step(me_, 1);
  for (std::uint64_t tag = 0; tag < 3; ++tag) begin(Direction::kWrite, tag, 0);
  pass(1);
  end(Direction::kWrite, {0});
  pass(1);
  end(Direction::kWrite, {1});
  pass(1);
  end(Direction::kWrite, {2}, EIO);
  recorder_->begin_step(me_, 2);
  const StepTrace made = trace();
  EXPECT_THAT(drawing(made, profile::kWriteOutLane), ElementsAre("storage 1 0+2", "storage 1 2+1"));
  EXPECT_EQ(fact(made.spans[0], "bytes"), std::to_string(2 * kPageBytes));
  EXPECT_EQ(fact(made.spans[0], "tensor"), "storage 1 of 6.00 MiB from conv");
  EXPECT_EQ(fact(made.spans[1], "bytes"), "0");
  GoldenPart().add(fact(made.spans[1], "failed"));
}

TEST_F(StepTraceRecorderTest, NamesStoragesAsTheValuesOfTheirStep) {
  // Range 4 is carried in; range 5 is born twice in the only operator, the first one inside it.
  recorder_->allocated(me_, StorageId(4, 0), Bytes(1 << 20));
  recorder_->begin_step(me_, 1);
  recorder_->begin_op(me_, 1, Text("mm"));
  recorder_->allocated(me_, StorageId(5, 0), Bytes(2 << 20));
  recorder_->allocated(me_, StorageId(5, 0), Bytes(3 << 20));
  pass(5);
  recorder_->end_op(me_, true, Bytes(4096));
  std::uint64_t tag = 0;
  for (const std::uint32_t range : {4, 5, 6}) {
    begin(Direction::kWrite, ++tag, range);
    pass(1);
    end(Direction::kWrite, {tag});
  }
  recorder_->begin_step(me_, 2);
  recorder_->allocated(me_, StorageId(4, 0), Bytes(9 << 20));  // Of the next step.
  profile::RecordedStep step;
  step.tape.ops.resize(1);
  step.tape.ops[0].use_count = 1;
  step.tape.uses = {{0, false}};
  step.tape.values.resize(2);
  step.tape.values[0].pages = step.tape.values[1].pages = 1;
  step.tape.values[1].birth = 0;
  step.origins.resize(2);
  step.origins[0].range = 4;
  step.origins[0].holds = profile::StorageClass::kParameter;
  step.origins[1].range = 5;
  step.origins[1].holds = profile::StorageClass::kGradient;
  recorder_->note_values(step, as_storage);
  const StepTrace made = trace();
  EXPECT_THAT(drawing(made, profile::kWriteOutLane),
              ElementsAre("parameter 0 5+1", "gradient 1 6+1", "a storage 7+1"));
  EXPECT_EQ(fact(made.spans.back(), "tensor"), "");
  EXPECT_EQ(fact(made.spans[2], "tensor"), "gradient 1 of 3.00 MiB from mm");
  ASSERT_EQ(made.marks.size(), 2u);
  EXPECT_EQ(made.marks[0].name, "step 1");
  EXPECT_EQ(made.marks[1].at_seconds, 0.008);
}

TEST_F(StepTraceRecorderTest, KeepsItsOwnNamesWhenAnotherStepIsTold) {
  recorder_->begin_step(me_, 1);
  recorder_->allocated(me_, StorageId(5, 0), Bytes(2 << 20));
  op("mm", 1);
  begin(Direction::kWrite, 1, 5);
  pass(1);
  end(Direction::kWrite, {1});
  recorder_->begin_step(me_, 2);
  profile::RecordedStep longer;
  longer.tape.ops.resize(2);
  recorder_->note_values(longer, as_storage);
  EXPECT_THAT(drawing(trace(), profile::kWriteOutLane), ElementsAre("storage 1 1+1"));
}

TEST_F(StepTraceRecorderTest, CutsWhatBeganBeforeTheFirstStepAtItsBegin) {
  begin(Direction::kRead, 1, 0);
  pass(4);
  recorder_->begin_step(me_, 1);
  pass(2);
  end(Direction::kRead, {1});
  begin(Direction::kRead, 2, 0);
  pass(1);
  recorder_->begin_step(me_, 2);
  pass(5);
  end(Direction::kRead, {2});
  const StepTrace made = trace();
  EXPECT_EQ(made.spans.front().begin_seconds, 0.0);
  GoldenPart golden;
  golden.add(fact(made.spans.front(), "begin"));
  golden.add(fact(made.spans.back(), "end"));
}

TEST_F(StepTraceRecorderTest, CountsResidentBytesFromTheBeginOfTheFirstStepOn) {
  op("load()", 3);
  recorder_->begin_step(me_, 1);
  op("mm()", 2);
  begin(Direction::kRead, 1, 0);
  pass(1);
  end(Direction::kRead, {1});
  pass(1);
  recorder_->begin_step(me_, 2);
  const auto counts = trace().resident_bytes;
  ASSERT_EQ(counts.size(), 2u) << "one for each change";
  EXPECT_EQ(counts[0].at_seconds, 0.0);
  EXPECT_EQ(counts[0].value, 4096.0);
  EXPECT_EQ(std::lround(1e3 * counts[1].at_seconds), 3);
  EXPECT_EQ(counts[1].value, 8192.0);
}

// --- Of a device ------------------------------------------------------------------------------

/// The host takes 1 ms for each operator, whatever its device does.
class DeviceTraceTest : public StepTraceRecorderTest {
 protected:
  DeviceTraceTest() {
    recorder_ = std::make_unique<StepTraceRecorder>(
        StepTraceRecorder::Options{.moment = [this] { return streams_[stream_].record(); },
                                   .stream = [this] { return 70 + stream_; },
                                   .has_far_tier = true},
        clock_);
  }

  void launch(const std::string& text, int kernel) {
    recorder_->begin_op(me_, std::hash<std::string>()(text), Text(text));
    recorder_->begun(me_);
    streams_[stream_].launch(std::chrono::milliseconds(kernel));
    pass(1);
    recorder_->end_op(me_, true, Bytes(4096));
  }
  /// Before an operator, for pages.
  void launch_after_wait(const std::string& text, int wait, int kernel) {
    recorder_->begin_op(me_, std::hash<std::string>()(text), Text(text));
    const auto from = recorder_->moment();
    pass(wait);
    recorder_->waited(me_, StallLedger::Reason::kInputs, std::chrono::milliseconds(wait), from);
    recorder_->begun(me_);
    streams_[stream_].launch(std::chrono::milliseconds(kernel));
    pass(1);
    recorder_->end_op(me_, true, Bytes(4096));
  }
  StepTrace ended() {
    recorder_->begin_step(me_, 2);
    for (TimedStream& stream : streams_) stream.synchronize();
    return trace();
  }

  std::array<TimedStream, 2> streams_{TimedStream(clock_), TimedStream(clock_)};
  std::size_t stream_ = 0;
};

TEST_F(DeviceTraceTest, ShowsWhenOperatorsWereLaunchedAndWhenTheyRan) {
  recorder_->begin_step(me_, 1);
  launch("conv(float[3])", 10);
  launch("relu()", 2);
  const StepTrace made = ended();
  EXPECT_THAT(drawing(made, profile::kLaunchLane), ElementsAre("conv 0+1", "relu 1+1"));
  EXPECT_THAT(drawing(made, profile::kComputeLane), ElementsAre("conv 0+10", "relu 10+2"));
  for (const TraceSpan& span : made.spans) EXPECT_EQ(fact(span, "step"), "1");
  EXPECT_EQ(fact(made.spans.back(), "operator"), "1");
  GoldenPart().add(recorder_->trace("net").summary);
}

// The first wait costs the device nothing: it has work.
TEST_F(DeviceTraceTest, ShowsWaitsOfTheHostWhereTheDeviceRanDry) {
  recorder_->begin_step(me_, 1);
  launch("conv()", 10);
  launch_after_wait("mm()", 4, 3);
  launch_after_wait("relu()", 20, 2);
  const StepTrace made = ended();
  EXPECT_THAT(drawing(made, profile::kLaunchLane),
              ElementsAre("conv 0+1", "wait 1+4", "mm 5+1", "wait 6+20", "relu 26+1"));
  EXPECT_THAT(drawing(made, profile::kComputeLane),
              ElementsAre("conv 0+10", "mm 10+3", "wait 13+13", "relu 26+2"));
}

TEST_F(DeviceTraceTest, HasALaneForEachStream) {
  recorder_->begin_step(me_, 1);
  launch("conv()", 10);
  stream_ = 1;
  launch("copy_()", 4);
  const StepTrace made = ended();
  EXPECT_THAT(drawing(made, profile::kComputeLane), ElementsAre("conv 0+10"));
  EXPECT_THAT(drawing(made, profile::kFurtherStreamLanes[0]), ElementsAre("copy_ 1+4"));
}

TEST_F(DeviceTraceTest, CountsWhatTheDeviceHasNotReached) {
  recorder_->begin_step(me_, 1);
  launch("conv()", 10);
  recorder_->begin_step(me_, 2);
  EXPECT_THAT(drawing(trace(), profile::kLaunchLane), ElementsAre("conv 0+1"));
  EXPECT_THAT(drawing(trace(), profile::kComputeLane), ElementsAre());
  GoldenPart().add(recorder_->trace("net").summary);
}

TEST_F(DeviceTraceTest, NamesWhatTheDisksBehindHostMemoryMove) {
  recorder_->allocated(me_, StorageId(0, 0), Bytes(kPageBytes));
  recorder_->begin_step(me_, 1);
  const swap::Transfer out{Direction::kWrite, swap::ExtentId(5), nullptr, kPageBytes, 1};
  recorder_->begin_transfer(out, StorageId(0, 0), false, clock_.now());
  pass(1);
  end(Direction::kWrite, {1});
  recorder_->begin_disk_transfer({Direction::kWrite, swap::ExtentId(5), nullptr, kPageBytes, 0});
  pass(3);
  recorder_->end_disk_transfer(
      {{Direction::kWrite, swap::ExtentId(5), nullptr, kPageBytes, 0}, 0, {}});
  const StepTrace made = ended();
  EXPECT_THAT(drawing(made, profile::kWriteOutLane), ElementsAre("storage 1 0+1"));
  EXPECT_THAT(drawing(made, profile::kFarWriteOutLane), ElementsAre("storage 1 1+3"));
  EXPECT_EQ(fact(made.spans.back(), "bytes"), std::to_string(kPageBytes));
  GoldenPart().add(recorder_->trace("net").summary);
}

// --- With a real engine -----------------------------------------------------------------------

/// What a store has moved, also after it is gone.
struct Moved {
  std::uint64_t bytes[2] = {0, 0};
};

class CountingStore final : public swap::ForwardingStore {
 public:
  CountingStore(std::unique_ptr<swap::SpillStore> child, Moved& moved)
      : ForwardingStore(std::move(child)), moved_(moved) {}

 private:
  void do_reap(std::vector<swap::TransferResult>& results,
               std::chrono::milliseconds timeout) override {
    child_->reap(results, timeout);
    for (const auto& result : results)
      moved_.bytes[static_cast<std::size_t>(result.transfer.direction)] += result.transfer.size;
  }

  Moved& moved_;
};

/// Layers that each make two pages of the two before, and free them on the way back.
class Trainer {
 public:
  static constexpr std::uint64_t kLayers = 12;

  explicit Trainer(Runtime& runtime) : runtime_(runtime) {}

  void step() {
    std::vector<void*> made;
    for (std::uint64_t i = 0; i < kLayers; ++i) {
      run(i, made.empty() ? nullptr : made.back(), [&] {
        made.push_back(runtime_.allocate(2 * kPageBytes));
        *static_cast<std::uint64_t*>(made.back()) = i;
      });
    }
    for (std::uint64_t i = kLayers; i-- > 0;) {
      run(1000 + i, made[i], [] {});
      runtime_.deallocate(made[i]);
    }
  }

  static std::vector<std::string> operators() {
    std::vector<std::string> names;
    for (std::uint64_t i = 0; i < kLayers; ++i) names.push_back("op" + std::to_string(i));
    for (std::uint64_t i = kLayers; i-- > 0;) names.push_back("op" + std::to_string(1000 + i));
    return names;
  }

 private:
  template <typename Body>
  void run(std::uint64_t number, void* input, const Body& body) {
    std::vector<RangeUse> uses;
    if (input != nullptr) uses.push_back(runtime_.find(input));
    const Text text("op" + std::to_string(number) + "(x)");
    runtime_.announce_op();
    runtime_.begin_op(number, uses, text);
    body();
    runtime_.end_op();
  }

  Runtime& runtime_;
};

/// The end of the latest span of each lane stays before the begin of the next one.
void expect_no_overlaps(const StepTrace& trace) {
  std::map<std::string_view, double> ends;
  for (const TraceSpan& span : trace.spans) {
    const auto [end, is_first] = ends.try_emplace(span.lane, span.begin_seconds);
    EXPECT_GE(span.begin_seconds, end->second - 1e-12) << span.lane << ": " << span.name;
    EXPECT_GE(span.seconds, 0.0);
    end->second = span.begin_seconds + span.seconds;
  }
}

TEST(TracedRuntime, ShowsEveryOperatorAndEveryByteThatMoved) {
  const SteadyClock clock;
  constexpr std::uint64_t kSteps = 6;
  StepTraceRecorder recorder({.steps = 100}, clock);
  Moved moved;
  swap::SwapEngineOptions engine;
  engine.budget = kPageSize * Trainer::kLayers;  // Half of what a step needs.
  engine.arena_size = 8_GiB;
  engine.observers = {&recorder};
  auto store = std::make_unique<CountingStore>(
      swap::make_ram_store(kPageSize * 256, 4, std::make_shared<swap::Notifier>()), moved);
  RuntimeOptions options;
  options.budget = engine.budget;
  options.trace = &recorder;
  auto runtime = std::make_unique<Runtime>(
      options,
      std::make_unique<swap::SwapEngine>(engine, memory::make_host_pages(best_mapper()),
                                         std::move(store), clock),
      clock);
  Trainer trainer(*runtime);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    runtime->begin_step();
    trainer.step();
  }
  const RuntimeReport report = runtime->report();
  runtime.reset();
  const int thread = 0;
  recorder.begin_step(&thread, kSteps + 1);

  const RecordedTrace made = recorder.trace("net");
  GoldenPart().add(made.trace.title);
  expect_no_overlaps(made.trace);
  std::vector<std::string> ran;
  std::uint64_t bytes[2] = {0, 0};
  std::set<std::string> numbers;
  std::size_t named = 0;
  for (const TraceSpan& span : made.trace.spans) {
    if (span.lane == profile::kComputeLane) {
      const bool is_op = span.name.starts_with("op");
      if (is_op) numbers.insert(fact(span, "operator"));
      if (is_op && fact(span, "part").empty()) ran.push_back(span.name);
    } else {
      bytes[span.lane == profile::kReadInLane ? 1 : 0] += std::stoull(fact(span, "bytes"));
      // Layer i makes value i; the last step has nobody who tells of its values.
      const std::string made_by =
          fact(span, "tensor").substr(fact(span, "tensor").rfind(" op") + 3);
      if (fact(span, "step") != std::to_string(kSteps)) {
        EXPECT_EQ(span.name, "activation " + made_by);
        ++named;
      }
    }
  }
  EXPECT_GT(named, 0u);
  std::vector<std::string> expected;
  for (std::uint64_t step = 0; step < kSteps; ++step)
    for (const std::string& name : Trainer::operators()) expected.push_back(name);
  EXPECT_EQ(ran, expected);
  EXPECT_EQ(report.ops, expected.size());
  EXPECT_EQ(numbers.size(), 2 * Trainer::kLayers) << "those of plans, the same in each step";
  EXPECT_GT(report.memory.spilled, Bytes());
  EXPECT_EQ(bytes[0], moved.bytes[0]);
  EXPECT_EQ(bytes[1], moved.bytes[1]);
  double most = 0.0;
  for (const profile::TraceCount& count : made.trace.resident_bytes)
    most = std::max(most, count.value);
  EXPECT_GT(most, 0.5 * static_cast<double>(engine.budget.count()));
  EXPECT_LE(most, static_cast<double>(report.memory.counted_peak.count()));
}

}  // namespace
}  // namespace spillway::runtime
