#!/usr/bin/env bash
# Runs every check that CI runs, in every lane that this Python can run.
#
#   scripts/test.sh                      everything
#   scripts/test.sh -k tuner             arguments go to pytest
#   LANES=k80 scripts/test.sh            one lane only
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

for lane in $lanes; do
  make_lane "$lane"
  check ".venvs/test-$lane/bin/python" -m pip check --disable-pip-version-check
done

bin=".venvs/test-${lanes##* }/bin"
check "$bin/black" --check --quiet "${SOURCES[@]}"
check "$bin/isort" --check "${SOURCES[@]}"
check "$bin/flake8" "${SOURCES[@]}"
check "$bin/mypy"
check "$bin/lint-imports"

# A lane keeps little more than one core busy, so they run side by side; each
# one's words come out in one piece.
logs=$(mktemp -d)
trap 'rm -rf "$logs"; kill $(jobs -p) 2>/dev/null || true' EXIT
for lane in $lanes; do
  ".venvs/test-$lane/bin/python" -m pytest -p no:cacheprovider "$@" \
    >"$logs/$lane" 2>&1 &
  echo $! >"$logs/$lane.pid"
done
for lane in $lanes; do
  code=0
  wait "$(<"$logs/$lane.pid")" || code=$?
  printf '\n== pytest, lane %s\n' "$lane"
  cat "$logs/$lane"
  ((code == 0)) || failures+=("pytest, lane $lane")
done

if ((${#failures[@]})); then
  printf '\nFAILED: %s' "${failures[@]}" >&2
  echo >&2
  exit 1
fi
