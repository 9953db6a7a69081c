#!/usr/bin/env bash
# From a fresh checkout to a trained model under half and a quarter of its memory. Started again, it
# skips what is already there. Flags: --steps N, --seed S, and after -- those of the trainer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'TEXT'
usage: ./quickstart.sh [--steps N] [--seed S] [-- flags of the trainer brain_unet]

Installs what is missing, fetches LibTorch, builds Spillway, and trains a 3-D U-Net plain, with room
for everything, with half of that memory and with a quarter; ends with a table that compares them.
TEXT
  exit 0
fi

setup=src/cmake/setup

"$setup/install_packages.sh" build demo
"$setup/fetch_libtorch.sh"

if [[ ! -f build/release/build.ninja ]]; then
  echo "build: configuring"
  cmake --preset release -DSPILLWAY_BUILD_TESTS=OFF
fi
cmake --build build/release --parallel "$("$setup/build_jobs.sh")" --target \
  bin/spillway lib/libspillway_preload.so lib/libspillway_core_2.11.so bin/brain_unet

exec python3 "$setup/demo.py" --bin build/release/bin --out build/quickstart "$@"
