#!/usr/bin/env bash
# Runs every check that CI runs, in every lane that this Python can run.
#
#   scripts/test.sh                      everything
#   scripts/test.sh -k tuner             arguments go to pytest
#   LANES=k80-sim scripts/test.sh        one lane only
#   PYTHON=python3.9 scripts/test.sh     another Python
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/_env.sh

if [[ ${1-} == -- ]]; then
  shift
fi
python=$(find_python)
lanes=${LANES:-$(find_lanes "$python")}
echo "Lanes: $lanes ($("$python" --version))"

# Runs a command; a failure is remembered, so that one run shows them all.
failures=()
check() {
  printf '\n== %s\n' "$*"
  "$@" || failures+=("$*")
}

# One test opens a page in a real browser. Only CI gets one installed for it.
if [[ ${CI-} == true && $EUID == 0 ]] && command -v apt-get >/dev/null &&
  ! command -v chromium >/dev/null; then
  check apt-get -qq update
  check env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install --yes --no-install-recommends chromium
fi

linters=
for lane in $lanes; do
  make_lane "$lane"
  check ".venvs/test-$lane/bin/python" -m pip check --disable-pip-version-check
  if [[ $lane != k80-sim ]]; then
    linters=".venvs/test-$lane/bin"
  fi
done

if [[ -n $linters ]]; then
  check "$linters/black" --check --quiet "${SOURCES[@]}"
  check "$linters/isort" --check "${SOURCES[@]}"
  check "$linters/flake8" "${SOURCES[@]}"
  check "$linters/mypy"
  check "$linters/lint-imports"
else
  printf '\n== No linters: they come with the lanes k80 and latest\n'
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"; kill $(jobs -p) 2>/dev/null || true' EXIT

# start_pytest LANE ARGUMENTS
start_pytest() {
  local lane=$1 options=()
  shift
  if [[ $lane == k80-sim ]]; then
    options=(--override-ini "testpaths=tests/sim tests/machine")
  fi
  ".venvs/test-$lane/bin/python" -m pytest -p no:cacheprovider \
    ${options[@]+"${options[@]}"} "$@" >"$logs/$lane" 2>&1 &
  echo $! >"$logs/$lane.pid"
}

# finish_pytest LANE ARGUMENTS
finish_pytest() {
  local lane=$1 code=0
  shift
  wait "$(<"$logs/$lane.pid")" || code=$?
  printf '\n== pytest, lane %s\n' "$lane"
  cat "$logs/$lane"
  # Arguments such as -k may leave nothing of the few tests of this lane.
  if [[ $lane == k80-sim && $code == 5 && $# -gt 0 ]]; then
    return
  fi
  ((code == 0)) || failures+=("pytest, lane $lane")
}

# A lane keeps little more than one core busy, so two run side by side; each
# one's words come out in one piece.
running=
for lane in $lanes; do
  start_pytest "$lane" "$@"
  if [[ -n $running ]]; then
    finish_pytest "$running" "$@"
  fi
  running=$lane
done
finish_pytest "$running" "$@"

if ((${#failures[@]})); then
  printf '\nFAILED: %s' "${failures[@]}" >&2
  echo >&2
  exit 1
fi
