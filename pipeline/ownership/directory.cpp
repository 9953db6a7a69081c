#include "spillway/pipeline/ownership/directory.h"

namespace spillway::pipeline {

const StorageFacts& Directory::at(StorageOrdinal storage) const {
  static const StorageFacts of_the_program;
  const auto found = all_.find(storage);
  return found == all_.end() ? of_the_program : found->second;
}

}  // namespace spillway::pipeline
