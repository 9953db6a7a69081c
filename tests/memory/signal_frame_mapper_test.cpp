// What holds for the signal kind alone: its manners towards other handlers.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <csetjmp>
#include <csignal>
#include <fstream>

#include "frame_mapper_conformance.h"
#include "spillway/base/error.h"

namespace spillway::memory {
namespace {

using ::testing::HasSubstr;

sigjmp_buf after_fault;
void* volatile foreign_fault = nullptr;
volatile int foreign_signals = 0;
sigset_t mask_in_handler;
struct sigaction displaced_action;

void leave_by_jump(int /*signal*/, siginfo_t* info, void* /*context*/) {
  foreign_fault = info->si_addr;
  siglongjmp(after_fault, 1);
}

void count(int /*signal*/) { foreign_signals = foreign_signals + 1; }

void note_mask(int /*signal*/) { pthread_sigmask(SIG_BLOCK, nullptr, &mask_in_handler); }

void call_predecessor(int signal, siginfo_t* info, void* context) {
  if ((displaced_action.sa_flags & SA_SIGINFO) == 0) abort();
  displaced_action.sa_sigaction(signal, info, context);
}

struct sigaction handler_of(void (*function)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  action.sa_sigaction = function;
  action.sa_flags = SA_SIGINFO;
  return action;
}

class SignalFrameMapper : public ::testing::Test {
 protected:
  SignalFrameMapper() {
    sigaction(SIGSEGV, nullptr, &before_);
    forbidden_ =
        static_cast<std::byte*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~SignalFrameMapper() override {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(forbidden_, 4096);
  }

  static std::unique_ptr<PageOwner> make_owner() {
    return std::make_unique<PageOwner>(make_frame_mapper(MapperKind::kSignal), 2, 3);
  }
  /// Whether the jumping handler was called for an access to the forbidden address.
  bool foreign_fault_arrives() {
    foreign_fault = nullptr;
    if (sigsetjmp(after_fault, 1) == 0) read_byte(forbidden_);
    return foreign_fault == forbidden_;
  }

  /// The same for accesses that come ever deeper in the stack, the first of them here.
  [[gnu::noinline]] bool foreign_faults_arrive_below(int levels) {
    volatile std::byte room[256];
    room[0] = std::byte{1};
    if (!foreign_fault_arrives()) return false;
    const bool others_arrive = levels == 0 || foreign_faults_arrive_below(levels - 1);
    return others_arrive && room[0] == std::byte{1};
  }

  struct sigaction before_ {};
  std::byte* forbidden_ = nullptr;
};

using SignalFrameMapperDeathTest = SignalFrameMapper;

TEST_F(SignalFrameMapper, HandsForeignFaultsToTheEarlierHandler) {
  const auto jumping = handler_of(leave_by_jump);
  sigaction(SIGSEGV, &jumping, nullptr);
  auto owner = make_owner();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(foreign_fault_arrives()) << i;
  EXPECT_EQ(read_byte(owner->page(1)), 0U);
  EXPECT_EQ(owner->take_faults().size(), 1U);
}

TEST_F(SignalFrameMapper, AHandlerThatIsLeftByAJumpMayBeCalledAgainFromDeeperInTheStack) {
  const auto jumping = handler_of(leave_by_jump);
  sigaction(SIGSEGV, &jumping, nullptr);
  auto owner = make_owner();
  EXPECT_TRUE(foreign_faults_arrive_below(20));
}

TEST_F(SignalFrameMapper, HandsSentSignalsToTheEarlierHandler) {
  signal(SIGSEGV, count);
  auto owner = make_owner();
  raise(SIGSEGV);
  EXPECT_EQ(foreign_signals, 1);
}

TEST_F(SignalFrameMapper, RunsTheEarlierHandlerUnderTheMaskThatItAskedFor) {
  for (const int flags : {0, SA_NODEFER}) {
    struct sigaction action {};
    action.sa_handler = note_mask;
    action.sa_flags = flags;
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaction(SIGSEGV, &action, nullptr);
    auto owner = make_owner();
    raise(SIGSEGV);
    EXPECT_EQ(sigismember(&mask_in_handler, SIGUSR1), 1);
    EXPECT_EQ(sigismember(&mask_in_handler, SIGUSR2), 0);
    EXPECT_EQ(sigismember(&mask_in_handler, SIGSEGV), flags == 0 ? 1 : 0);
  }
}

TEST_F(SignalFrameMapper, IgnoresASentSignalThatWasIgnoredBefore) {
  signal(SIGSEGV, SIG_IGN);
  auto owner = make_owner();
  raise(SIGSEGV);
  EXPECT_EQ(read_byte(owner->page(1)), 0U);  // And serves on.
  EXPECT_EQ(owner->take_faults().size(), 1U);
}

TEST_F(SignalFrameMapper, RestoresTheEarlierHandlerAtItsEnd) {
  const auto jumping = handler_of(leave_by_jump);
  sigaction(SIGSEGV, &jumping, nullptr);
  make_owner().reset();
  struct sigaction now {};
  sigaction(SIGSEGV, nullptr, &now);
  EXPECT_EQ(now.sa_sigaction, leave_by_jump);
}

TEST_F(SignalFrameMapper, ComesBackInFrontOfALaterHandler) {
  auto owner = make_owner();
  owner->bring_in(1, Access::kWrite);
  const auto jumping = handler_of(leave_by_jump);
  sigaction(SIGSEGV, &jumping, nullptr);
  ASSERT_EQ(owner->move_out(1), MoveResult::kMoved);
  EXPECT_EQ(read_byte(owner->page(1)), 0U);
  EXPECT_EQ(owner->take_faults().size(), 1U);
  EXPECT_TRUE(foreign_fault_arrives());
}

TEST_F(SignalFrameMapper, TwoMappersServeTheirOwnPages) {
  auto first = make_owner();
  auto second = make_owner();
  read_byte(first->page(1));
  read_byte(second->page(0));
  EXPECT_THAT(first->take_faults(), ::testing::ElementsAre(Fault{1, Access::kRead}));
  EXPECT_THAT(second->take_faults(), ::testing::ElementsAre(Fault{0, Access::kRead}));
  first.reset();
  read_byte(second->page(1));
  EXPECT_THAT(second->take_faults(), ::testing::ElementsAre(Fault{1, Access::kRead}));
}

TEST_F(SignalFrameMapperDeathTest, AForeignFaultWithoutEarlierHandlerKills) {
  // The kernel ignores no fault either.
  for (const auto before : {SIG_DFL, SIG_IGN}) {
    signal(SIGSEGV, before);
    EXPECT_EXIT(
        {
          auto owner = make_owner();
          read_byte(forbidden_);
        },
        ::testing::KilledBySignal(SIGSEGV), "");
  }
}

TEST_F(SignalFrameMapperDeathTest, HandlersThatCallEachOtherEndInsteadOfLooping) {
  signal(SIGSEGV, SIG_DFL);
  EXPECT_EXIT(
      {
        auto owner = make_owner();
        owner->bring_in(1, Access::kWrite);
        const auto later = handler_of(call_predecessor);
        sigaction(SIGSEGV, &later, &displaced_action);
        owner->move_out(1);
        read_byte(forbidden_);
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(SignalFrameMapperDeathTest, AnAccessThatIsNeverServedEndsWithItsAddress) {
  signal(SIGSEGV, SIG_DFL);
  EXPECT_EXIT(
      {
        auto owner = make_owner();
        owner->ask_before_serving([](Fault) { return false; });
        write_byte(owner->page(1), 1);
      },
      ::testing::KilledBySignal(SIGSEGV),
      "a write at address 0x[0-9a-f]+ trapped 50 times and nothing was done");
}

TEST_F(SignalFrameMapper, APoolBeyondTheMappingLimitIsRefusedWithTheLimit) {
  std::size_t allowed = 0;
  ASSERT_TRUE(std::ifstream("/proc/sys/vm/max_map_count") >> allowed);
  PageOwner sink(make_frame_mapper(MapperKind::kSignal), 1, 1);
  for (const MapperKind kind : {MapperKind::kSignal, MapperKind::kCopy}) {
    try {
      make_frame_mapper(kind)->reserve(kPageSize, allowed * kPageSize, sink);
      FAIL() << "accepted";
    } catch (const UnsupportedError& error) {
      EXPECT_EQ(error.what(), reason_against_pool(kind, allowed * kPageSize, allowed));
    }
  }
}

TEST(PoolLimit, IsWhatTheMappingsOfOneProcessSufficeFor) {
  EXPECT_EQ(pool_limit(MapperKind::kUserfaultfd, 65530), std::nullopt);
  EXPECT_EQ(pool_limit(MapperKind::kUserfaultfdUser, 65530), std::nullopt);
  EXPECT_EQ(pool_limit(MapperKind::kSignal, 65530), 40956_MiB);
  EXPECT_EQ(pool_limit(MapperKind::kCopy, 65530), 61434_MiB);
  EXPECT_EQ(pool_limit(MapperKind::kSignal, 1000), 0_B);
}

TEST(ReasonAgainstPool, NamesTheSettingThatWouldDoAndTheLargestBudget) {
  EXPECT_EQ(reason_against_pool(MapperKind::kUserfaultfd, 4_TiB, 65530), "");
  EXPECT_EQ(reason_against_pool(MapperKind::kSignal, 40956_MiB, 65530), "");
  EXPECT_EQ(
      reason_against_pool(MapperKind::kSignal, 40958_MiB, 65530),
      "the mapper \"signal\" needs up to 65533 mappings for a budget of 40.0 GiB, and "
      "vm.max_map_count is 65530; run `sysctl vm.max_map_count=65533`, or give a budget of at "
      "most 40956MiB");
  EXPECT_EQ(reason_against_pool(MapperKind::kSignal, 40958_MiB, 65533), "");
  // One page is no budget.
  EXPECT_EQ(pool_limit(MapperKind::kSignal, 4100), 2_MiB);
  EXPECT_EQ(reason_against_pool(MapperKind::kSignal, 40_MiB, 4100),
            "the mapper \"signal\" needs up to 4156 mappings for a budget of 40.0 MiB, and "
            "vm.max_map_count is 4100; run `sysctl vm.max_map_count=4156`");
}

}  // namespace
}  // namespace spillway::memory
