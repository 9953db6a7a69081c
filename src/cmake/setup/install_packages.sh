#!/usr/bin/env bash
# Installs the Debian packages of the named groups that are missing:
#   install_packages.sh build|demo|test|bench...
# Without apt, or without the right to use it, says what to install and exits non-zero.
set -euo pipefail

if [[ "${SPILLWAY_SKIP_PACKAGES:-}" == 1 ]]; then
  echo "packages: not looked at, as SPILLWAY_SKIP_PACKAGES=1 says"
  exit 0
fi

packages_of() {
  case "$1" in
    build) echo g++ cmake ninja-build ccache python3 python3-pip ca-certificates \
      libcli11-dev nlohmann-json3-dev libspdlog-dev libhwloc-dev liburing-dev libxxhash-dev \
      libnifti-dev libjpeg62-turbo-dev libturbojpeg0-dev coinor-libclp-dev ;;
    demo) echo mricron-data ;;
    test) echo libgtest-dev libgmock-dev clang-format mricron-data \
      mpich openmpi-bin libmpich-dev libopenmpi-dev \
      bash-completion zsh fish man-db groff-base \
      lomiri-wallpapers-16.04 lomiri-wallpapers-20.04 ;;
    bench) echo libbenchmark-dev fio python3-matplotlib ;;
    *) echo "install_packages.sh: unknown group '$1'; groups: build demo test bench" >&2; exit 2 ;;
  esac
}

wanted=()
for group in "$@"; do
  list=$(packages_of "$group")
  read -ra words <<<"$list"
  wanted+=("${words[@]}")
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  cat >&2 <<MESSAGE
This system has no apt. Install what these Debian packages hold, then start again with
SPILLWAY_SKIP_PACKAGES=1 in the environment:
  ${wanted[*]}
MESSAGE
  exit 1
fi

missing=()
for package in "${wanted[@]}"; do
  if [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]]; then
    missing+=("$package")
  fi
done
if ((${#missing[@]} == 0)); then
  echo "packages: all ${#wanted[@]} present"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    as_root=(sudo)
  else
    echo "Missing packages, and neither root nor sudo here. Have them installed with:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

# The MPIs compete for the names mpiexec, mpirun, mpicc and libmpi.so, and the one of the highest priority wins:
# where a user has one, those names shall go on meaning it.
readonly shared_names=(mpirun mpi mpi-x86_64-linux-gnu)
owner_of() {
  update-alternatives --query "$1" 2>/dev/null | sed -n 's/^Value: //p'
}
owners=()
for name in "${shared_names[@]}"; do
  owners+=("$(owner_of "$name" || true)")
done
give_names_back() {
  local at
  for at in "${!shared_names[@]}"; do
    if [[ -n "${owners[at]}" && "$(owner_of "${shared_names[at]}")" != "${owners[at]}" ]]; then
      "${as_root[@]}" update-alternatives --set "${shared_names[at]}" "${owners[at]}" >/dev/null
      echo "packages: ${shared_names[at]} is ${owners[at]} as before, not that of a new package"
    fi
  done
}

echo "packages: installing ${missing[*]}"
install() {
  local status=0
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 "${missing[@]}" || status=$?
  give_names_back
  return "$status"
}
# A fresh system has no package lists, an old one has stale ones.
if ! install; then
  echo "packages: refreshing the package lists and trying once more"
  "${as_root[@]}" apt-get update
  if ! install; then
    echo "Could not install: ${missing[*]}. Try 'apt-get install' by hand to see why." >&2
    exit 1
  fi
fi
