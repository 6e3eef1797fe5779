#!/bin/sh
# Make the virtual environment $1 with the packages locked in $2.
set -eu
venv=$1 lock=$2

supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
for python in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
    "$python" -c "$supported" 2>/dev/null && break
    python=
done
if [ -z "$python" ]; then
    echo "No Python 3.11 to 3.13 found: ansible-core 2.19 runs on those. Name one: make PYTHON=/path/to/python3" >&2
    exit 1
fi

"$python" -m venv --clear "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

# uv is ten times faster but does not read pip's settings: a machine with an index of its own stays with pip.
if ! pip config list | grep -q 'index' &&
    pip install --quiet "$(grep '^uv==' requirements/dev.txt)" &&
    "$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" -r "$lock"; then
    exit 0
fi
pip install --quiet --no-deps -r "$lock"
