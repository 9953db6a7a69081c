#!/usr/bin/env bash
# From a fresh checkout to a trained model under half and a quarter of its memory. Started again, it
# skips what is already there.
set -euo pipefail

readonly costs="\
Downloads, once: about 570 MB of LibTorch, up to 150 MB of Debian packages. Disk: 700 MB in
${XDG_CACHE_HOME:-~/.cache}/spillway (1.5 GB while it is fetched), 700 MB in build/, and up to 3 GB in
/var/tmp while it trains. Memory: 3.5 GB. Time on two cores: about 6 minutes to build, 2 to train."

print_help() {
  cat <<TEXT
usage: ./quickstart.sh [--steps N] [--seed S] [-- flags of the trainer brain_unet]

Installs what is missing, fetches LibTorch, builds Spillway, and trains a 3-D U-Net plain, with room
for everything, with half of that memory and with a quarter; ends with a table that compares them.

  --steps N   steps of each of the four trainings [6]
  --seed S    decides the initial weights and all random numbers [1]

$costs
TEXT
}

refuse() {
  echo "./quickstart.sh: $1 (see ./quickstart.sh --help)" >&2
  exit 2
}

# number FLAG LEAST VALUE
number() {
  [[ $3 =~ ^[0-9]{1,9}$ ]] && ((10#$3 >= $2)) || refuse "$1 must be $2 or more, not '$3'"
}

steps=6
seed=1
while (($# > 0)); do
  case $1 in
    -h | --help) print_help; exit 0 ;;
    --steps=* | --seed=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    --steps | --seed)
      (($# > 1)) || refuse "$1 needs a number"
      if [[ $1 == --steps ]]; then number "$1" 1 "$2"; steps=$2; fi
      if [[ $1 == --seed ]]; then number "$1" 0 "$2"; seed=$2; fi
      shift 2 ;;
    --) break ;;
    -*) refuse "unknown option '$1'" ;;
    *) refuse "unexpected argument '$1'" ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")"
setup=src/cmake/setup
echo "$costs"

"$setup/install_packages.sh" build demo
"$setup/fetch_libtorch.sh"

if [[ ! -f build/release/build.ninja ]]; then
  echo "build: configuring"
  cmake --preset release -DSPILLWAY_BUILD_TESTS=OFF
fi
cmake --build build/release --parallel "$("$setup/build_jobs.sh")" --target \
  bin/spillway lib/libspillway_preload.so lib/libspillway_core_2.11.so bin/brain_unet

python3 "$setup/demo.py" --bin build/release/bin --out build/quickstart --steps "$steps" \
  --seed "$seed" "$@"
echo
echo "Next, your own trainer: build/release/bin/spillway run --budget 4GiB -- ./trainer"
