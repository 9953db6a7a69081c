#!/usr/bin/env bash
# From a fresh checkout to a trained model under half and a quarter of its memory. Started again, it
# skips what is already there.
set -euo pipefail

readonly costs="\
Downloads, once: about 570 MB of LibTorch, up to 150 MB of Debian packages. Disk: 700 MB in
${XDG_CACHE_HOME:-~/.cache}/spillway (1.5 GB while it is fetched), 30 MB in build/, and up to 3 GB in
/var/tmp while it trains. Memory: 3.5 GB. Time on two cores: about 2 minutes to build, 2 to train."

print_help() {
  cat <<TEXT
usage: ./quickstart.sh [--steps N] [--seed S] [-- flags of the trainer brain_unet]

Installs what is missing, fetches LibTorch, builds Spillway, and trains a 3-D U-Net plain, with room
for everything, with half of that memory and with a quarter; ends with a table that compares them.

  --steps N   steps of each of the four trainings [6]
  --seed S    decides the initial weights and all random numbers [1]

SPILLWAY_LIBTORCH=2.13 takes that minor release of LibTorch, instead of the newest that Spillway serves.

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

minor=""  # Of whatever SPILLWAY_LIBTORCH_DIR names.
if [[ -z "${SPILLWAY_LIBTORCH_DIR:-}" ]]; then
  release=$(python3 "$setup/libtorch.py" version "${SPILLWAY_LIBTORCH:-}")
  minor=${release%.*}
fi

configure() {
  echo "build: configuring"
  # Two units include torch/torch.h: a precompiled copy would take longer than it saves, and 700 MB.
  cmake --preset release -DSPILLWAY_BUILD_TESTS=OFF -DSPILLWAY_TORCH_PCH=OFF "$@"
}

# As whole lines, since another program may write beside it.
build() {
  cmake --build build/release --parallel "$("$setup/build_jobs.sh")" --target "$@" | cat
}

# is_configured REGEX: whether the build folder is, with that in its cache.
is_configured() {
  [[ -f build/release/build.ninja ]] && grep -q "$1" build/release/CMakeCache.txt
}

has_libtorch() {
  # What SPILLWAY_LIBTORCH_DIR names may have changed.
  [[ -n $minor ]] && is_configured '^SPILLWAY_WITH_TORCH:BOOL=ON' && is_configured "^SPILLWAY_LIBTORCH:STRING=$minor\$"
}

build_without_libtorch() {
  if ! is_configured '^SPILLWAY_WITH_TORCH:BOOL=ON'; then
    configure -DSPILLWAY_WITH_TORCH=OFF
    build bin/spillway lib/libspillway_preload.so
    echo "build: what needs no LibTorch is there"
  fi
}

# Both at once. Each leads a process group of its own, and is ended with all that it has started.
parts=()
end_parts() {
  local part
  for part in "${parts[@]}"; do
    kill -TERM -- "-$part" 2>/dev/null || true
  done
  wait
}
trap end_parts EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
set -m
"$setup/fetch_libtorch.sh" "$minor" &
fetching=$!
build_without_libtorch &
parts=("$fetching" $!)
set +m
while ((${#parts[@]} > 0)); do
  status=0
  wait -n -p ended "${parts[@]}" || status=$?
  if ((status != 0)); then
    what="the build has failed"
    if ((ended == fetching)); then what="LibTorch could not be fetched"; fi
    end_parts
    echo "./quickstart.sh: $what, for the reason above" >&2
    exit "$status"
  fi
  left=()
  for part in "${parts[@]}"; do
    ((part == ended)) || left+=("$part")
  done
  parts=("${left[@]}")
done

if ! has_libtorch; then
  configure -DSPILLWAY_WITH_TORCH=ON -DSPILLWAY_LIBTORCH="$minor"
fi
programs=(bin/spillway bin/brain_unet)
# What an earlier build has left stays of the same version as the command.
if [[ -e build/release/bin/spillway-planning ]]; then
  programs+=(bin/spillway-planning)
fi
build "${programs[@]}" lib/libspillway_preload.so spillway_cores

python3 "$setup/demo.py" --bin build/release/bin --out build/quickstart --steps "$steps" \
  --seed "$seed" "$@"
echo
echo "Next, your own trainer: build/release/bin/spillway run --budget 4GiB -- ./trainer"
