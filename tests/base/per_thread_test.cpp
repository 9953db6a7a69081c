#include "spillway/base/per_thread.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace spillway {
namespace {

struct Counted {
  int uses = 0;
};

TEST(PerThread, IsTheSameWithinAThreadAndAnotherElsewhere) {
  struct Here : Counted {};
  Here* const mine = &per_thread<Here>();
  EXPECT_EQ(&per_thread<Here>(), mine);
  Here* others = nullptr;
  std::thread([&] { others = &per_thread<Here>(); }).join();
  EXPECT_NE(others, mine);
}

TEST(PerThread, IsHandedOnToLaterThreads) {
  struct Handed : Counted {};
  std::set<Handed*> seen;
  for (int i = 0; i < 100; ++i)
    std::thread([&] {
      ++per_thread<Handed>().uses;
      seen.insert(&per_thread<Handed>());
    }).join();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ((*seen.begin())->uses, 100);
}

TEST(PerThread, IsHandedOnWhereAThreadAsksWhileItsObjectsAreDestroyed) {
  struct Late : Counted {};
  struct Asks {
    ~Asks() { ++per_thread<Late>().uses; }
  };
  std::set<Late*> seen;
  for (int i = 0; i < 3; ++i)
    std::thread([&] {
      static thread_local Asks before;  // It dies after what is made later.
      static_cast<void>(&before);
      seen.insert(&per_thread<Late>());
    }).join();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ((*seen.begin())->uses, 3);
}

TEST(PerThread, ForgetsWhatHeldForTheThreadBefore) {
  struct Forgetful : Counted {
    void begin_thread() { uses = 0; }
  };
  std::set<Forgetful*> seen;
  std::set<int> uses;
  for (int i = 0; i < 3; ++i)
    std::thread([&] {
      seen.insert(&per_thread<Forgetful>());
      uses.insert(++per_thread<Forgetful>().uses);
    }).join();
  EXPECT_EQ(seen.size(), 1u);
  EXPECT_EQ(uses, std::set<int>{1});
}

}  // namespace
}  // namespace spillway
