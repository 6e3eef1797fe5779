#!/bin/sh
# Print a Python that everything here runs on.
set -eu

supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
for python in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
    if "$python" -c "$supported" 2>/dev/null; then
        echo "$python"
        exit
    fi
done
echo "No Python 3.11 to 3.13 found: ansible-core 2.19 runs on those. Name one: make PYTHON=/path/to/python3" >&2
exit 1
