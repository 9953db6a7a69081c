#!/usr/bin/env bash
# Tests what this machine can: the part without LibTorch under the sanitizers, then all in the release build with the
# oldest LibTorch that is served, then what depends on LibTorch with the newest. Exit status 0 when all passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [[ ${1:-} == --gpu ]]; then
  shift
  exec python3 -B tests/gpu/gpu_test.py "$@"
fi
all_libtorch=0
slow=0
for word in "$@"; do
  case $word in
    --all-libtorch) all_libtorch=1 ;;
    --slow) slow=1 ;;
    *)
      cat <<'TEXT'
usage: ./test.sh [--slow] [--all-libtorch]
       ./test.sh --gpu [options]

Installs what is missing, builds, and runs what this machine can test.
Single cases: ctest --preset release -R NAME

  --slow           also the cases with the label `slow`, and each source compiled alone: twice the time
  --all-libtorch   only the cases that depend on LibTorch, with each minor release that is served
  --gpu            what only a real GPU can show, on a machine with one: see tests/gpu/README.md
TEXT
      [[ $word == -h || $word == --help ]] && exit 0 || exit 2
      ;;
  esac
done

setup=src/cmake/setup

"$setup/install_packages.sh" build test
# The oldest LibTorch gets all cases; what depends on LibTorch is tested with the newest, too. Another that is
# named takes the place of both.
releases=("")
if [[ -z "${SPILLWAY_LIBTORCH_DIR:-}" ]]; then
  served=$(python3 "$setup/libtorch.py" versions)
  mapfile -t releases <<<"$served"
  ((all_libtorch)) || releases=("${releases[0]}" "${releases[-1]}")
fi
for release in "${releases[@]}"; do
  cuda=()
  if python3 "$setup/libtorch.py" wheels cuda "$release" >/dev/null 2>&1; then
    cuda=(--cuda)  # For the tests on an emulated CUDA.
  fi
  "$setup/fetch_libtorch.sh" "${cuda[@]}" "$release"
  [[ -z $release ]] || "$setup/fetch_python.sh" "$release"
done
jobs=$("$setup/build_jobs.sh")

# What may differ from one LibTorch to the next: what records of operators give back, the adapter, and whole trainers.
libtorch_targets=(spillway_command spillway_preload spillway_core bindings/examples/all tests/recompute/all
  tests/bindings/{awkward,equality,examples,torch}/all)
libtorch_cases='^(recompute|torch_binding|core|awkward|awkward_recompute)\.|^python_trainer'
libtorch_cases+='|^equality\.(brain_unet|photo_net|text_gpt_activations)$'

headline() { printf '\n== %s (%d min)\n' "$*" $((SECONDS / 60)); }

# run_build <name> <preset> <LibTorch> <cases>: configures build/<name>, builds all of it, or only what `libtorch_cases`
# need, and runs the cases; leaves ctest's output and status behind. Called where `set -e` is off, so it returns at
# the first failure itself.
run_build() {
  local name=$1 preset=$2 release=$3 cases=$4
  headline "$name: build"
  # What includes less than it needs is noticed where each source is compiled alone: with --slow, those without
  # LibTorch in the build `asan`, those that include it in the build with the newest.
  local unity=ON targets=(all)
  if [[ $cases == "$libtorch_cases" ]]; then
    targets=("${libtorch_targets[@]}")
    ((!slow)) || unity=PLAIN
  elif [[ $name == asan ]] && ((slow)); then
    unity=OFF
    targets+=(all_verify_interface_header_sets)
  fi
  cmake --preset "$preset" -B "build/$name" -DSPILLWAY_LIBTORCH="${release%.*}" -DSPILLWAY_UNITY_BUILD=$unity \
    >"build/$name.configure.log" 2>&1 || {
    cat "build/$name.configure.log"
    return 1
  }
  grep -E 'LibTorch|WARNING|Warning' "build/$name.configure.log" || true
  cmake --build "build/$name" --parallel "$jobs" --target "${targets[@]}" || return 1
  headline "$name: test"
  # The Python that was fetched, unless another one is named.
  local variables=(OMP_WAIT_POLICY=passive)
  local python="${XDG_CACHE_HOME:-$HOME/.cache}/spillway/python-torch-$release/python/bin/python3"
  if [[ -z "${SPILLWAY_TEST_PYTHON:-}" && -x "$python" ]]; then
    variables+=(SPILLWAY_TEST_PYTHON="$python")
  fi
  local filter=()
  ((slow)) || filter=(--label-exclude '^slow$')
  # More cases at once than there are cores: they wait for children, disks and clocks.
  env "${variables[@]}" ctest --test-dir "build/$name" --tests-regex "$cases" "${filter[@]}" \
    --output-on-failure --test-output-size-passed 1000000 --no-tests=error --parallel "$(($(nproc) + 2))" \
    --output-junit "$PWD/build/$name.junit.xml" 2>&1 | tee "build/$name.ctest.log"
}

summary_of() {
  grep -E '^[0-9]+% tests passed' "build/$1.ctest.log" 2>/dev/null || echo "no case was run in $1"
}

mkdir -p build
rm -f build/*.junit.xml build/*.ctest.log
builds=()
failed=()
# run <arguments of run_build>
run() {
  builds+=("$1")
  run_build "$@" || failed+=("$1")
}

if ((!all_libtorch)); then
  run asan asan "" .
  run tsan tsan "" .
  run release release "${releases[0]}" .
  releases=("${releases[@]:1}")
fi
for release in "${releases[@]}"; do
  run "libtorch-${release%.*}" release "$release" "$libtorch_cases"
done

if [[ -f build/release.junit.xml ]]; then
  headline "cases of the release build"
  python3 "$setup/count_cases.py" build/release build/release.junit.xml
fi
# Behind the long table, as whoever sees the end of the output alone has to see these.
for name in "${builds[@]}"; do
  if [[ $name != release && -f build/$name.junit.xml ]]; then
    headline "skipped or failed in $name"
    python3 "$setup/count_cases.py" --exceptions-only "build/$name" "build/$name.junit.xml"
  fi
done
headline "summary"
if ((${#failed[@]} > 0)); then
  echo "failed: ${failed[*]}"
fi
for name in "${builds[@]}"; do
  [[ $name == release ]] || echo "$name: $(summary_of "$name")"
done
((all_libtorch)) || summary_of release
((slow)) || echo "cases with the label slow were left out: ./test.sh --slow"
((${#failed[@]} == 0))
