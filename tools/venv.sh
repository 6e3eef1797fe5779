#!/bin/sh
# Make the virtual environment $1 with the packages locked in $2.
set -eu
venv=$1 lock=$2

python=$("$(dirname "$0")/python.sh")

"$python" -m venv --clear "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

# uv is ten times faster but does not read pip's settings: a machine with an index of its own stays with pip.
if ! pip config list | grep -q 'index' &&
    pip install --quiet "$(grep '^uv==' requirements/dev.txt)" &&
    "$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" -r "$lock"; then
    exit 0
fi
pip install --quiet --no-deps -r "$lock"
