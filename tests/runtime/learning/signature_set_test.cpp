#include "signature_set.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
namespace {

TEST(SignatureSet, KeepsTheFirstOnes) {
  SignatureSet set(2);
  for (const std::uint64_t signature : {7, 7, 8, 9}) set.insert(signature);
  EXPECT_TRUE(set.contains(7));
  EXPECT_TRUE(set.contains(8));
  EXPECT_FALSE(set.contains(9));
}

}  // namespace
}  // namespace spillway::runtime
