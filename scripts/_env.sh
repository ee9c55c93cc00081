# shellcheck shell=bash
# Sourced by the other scripts, from the repository's root.

# shellcheck disable=SC2034  # used by who sources this
SOURCES=(k80keras scripts tests setup.py)

# Prints the Python to build environments with.
find_python() {
  local candidate candidates=(python3.11 python3)
  if [[ -n ${PYTHON-} ]]; then
    candidates=("$PYTHON")
  fi
  for candidate in "${candidates[@]}"; do
    # Run it: a version manager's shim may exist and yet lead nowhere.
    if "$candidate" -c 'import venv' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "No usable Python (tried: ${candidates[*]})." \
    "Install Python 3.11, or name one: PYTHON=/path/to/python $0" >&2
  return 1
}

# Prints the lanes that a Python can run: TensorFlow 2.14.1 has wheels for 3.9
# to 3.11, the newest TensorFlow is tested on 3.11 and later; the simulated K80
# box needs CUDA's wheels and a compiler, and has no linters.
find_lanes() {
  "$1" -c 'import platform, shutil, sys
version = sys.version_info[:2]
k80 = (3, 9) <= version <= (3, 11)
linux = (sys.platform, platform.machine()) == ("linux", "x86_64")
sim = k80 and linux and shutil.which("gcc")
print(*["k80"] * k80, *["latest"] * (version >= (3, 11)), *["k80-sim"] * bool(sim))'
}

# make_lane LANE: leaves the complete test environment of a lane.
make_lane() {
  case $1 in
    k80) make_env test-k80 k80-cpu,datasets,report,dev ;;
    k80-sim) make_env test-k80-sim k80,test ;;
    latest) make_env test-latest tensorflow,datasets,report,dev ;;
    *)
      echo "No lane called '$1': there are k80, k80-sim and latest." >&2
      return 1
      ;;
  esac
}

# make_env NAME EXTRAS: leaves a complete .venvs/NAME with the package editable.
make_env() {
  local env=".venvs/$1" extras=$2 python key
  python=$(find_python)
  key=$({
    echo "$PWD $extras"
    "$python" -c 'import sys; print(sys.version, sys.base_prefix)'
    cat setup.cfg setup.py
  } | cksum)
  if [[ -f $env/k80keras.key && $(<"$env/k80keras.key") == "$key" ]]; then
    return
  fi
  echo "Making $env ($("$python" --version), .[$extras]): one to three minutes"
  rm -rf "$env"
  if "$python" -c 'import ensurepip' 2>/dev/null; then
    "$python" -m venv "$env"
  else
    # Debian's Python without python3-venv.
    "$python" -m venv --without-pip "$env"
    "$python" -m pip --python "$env/bin/python" install --quiet \
      --disable-pip-version-check pip
  fi
  # The pip that comes with Python 3.9 needs many minutes to resolve the extras.
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check \
    --upgrade pip
  # setuptools would warn at length that an editable install is one.
  PYTHONWARNINGS=ignore "$env/bin/python" -m pip install --quiet \
    --disable-pip-version-check \
    --editable ".[$extras]"
  # Last, so that a half-built environment is never taken for complete.
  echo "$key" >"$env/k80keras.key"
}
