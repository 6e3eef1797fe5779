#!/usr/bin/env bash
# Start a lab of its own, run the demo playbook on it, and stop the lab whatever happens.
set -euo pipefail
cd "$(dirname "$0")/.."
run_dir=build/demo-lab

stop_lab() {
    python -m lab down --run-dir "$run_dir"
}
trap stop_lab EXIT

stop_lab # one that an earlier, killed demo may have left
python -m lab up --scenario default --run-dir "$run_dir" --speed 20
environment=$(python -m lab env --run-dir "$run_dir")
eval "$environment"
ANSIBLE_COLLECTIONS_PATH=$PWD/build/installed ANSIBLE_CALLBACK_RESULT_FORMAT=yaml ANSIBLE_LOCALHOST_WARNING=false \
    ANSIBLE_INVENTORY_UNPARSED_WARNING=false ansible-playbook demo/sriov.yml "$@"
