// Apart, since the folder is another one in each checkout: compilers' caches need not know it for
// the tests themselves.

#include "support/golden_folder.h"

namespace spillway {

std::string golden_file(const std::string& name) { return SPILLWAY_TEST_GOLDEN "/" + name; }

}  // namespace spillway
