#!/usr/bin/env bash
# Bare hosts in a lab of its own become GPU clusters, on Harvester and on vSphere. The lab is stopped whatever happens.
set -euo pipefail
cd "$(dirname "$0")/.."
run_dir=${DEMO_RUN_DIR:-build/demo-lab}
cluster_file=${DEMO_CLUSTER:-demo/cluster.yml}

stop_lab() {
    # Ctrl-C reaches this twice, from the terminal and from make.
    trap '' INT TERM
    python -m lab down --run-dir "$run_dir"
}
trap stop_lab EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

play() {
    ansible-playbook "vgpu.fleet.$1" -e "@$cluster_file" "${@:2}"
}

export ANSIBLE_COLLECTIONS_PATH=$PWD/build/installed ANSIBLE_CALLBACK_RESULT_FORMAT=yaml ANSIBLE_LOCALHOST_WARNING=false \
    ANSIBLE_INVENTORY_UNPARSED_WARNING=false ANSIBLE_DISPLAY_SKIPPED_HOSTS=false ANSIBLE_DISPLAY_OK_HOSTS=false \
    ANSIBLE_SHOW_CUSTOM_STATS=false

python -m lab down --run-dir "$run_dir" # one that an earlier, killed demo may have left

say "A lab: two Harvester nodes with an A2 each and a Rancher, two ESXi hosts with two A40 each, as they come"
python -m lab up --scenario demo/lab.yaml --run-dir "$run_dir" --speed 50 --with rancher
environment=$(python -m lab env --run-dir "$run_dir")
eval "$environment"

say "Harvester: addons, driver, SR-IOV, vGPUs, VMs, a cluster by Rancher, and a test of its GPUs (what changes is shown)"
ANSIBLE_SHOW_CUSTOM_STATS=true play harvester_gpu_cluster --skip-tags report
say "vSphere: shared direct graphics, VMs (what changes is shown)"
play vsphere_gpu_cluster --skip-tags report

say "Both once more: nothing is left to change"
for cluster in harvester vsphere; do
    again=$(play "${cluster}_gpu_cluster" --skip-tags report | sed '1,/^PLAY RECAP/d')
    echo "$again"
    if grep -q 'changed=[1-9]' <<<"$again"; then
        echo "A second run of ${cluster}_gpu_cluster changed something." >&2
        exit 1
    fi
done

export ANSIBLE_DISPLAY_OK_HOSTS=true
say "What there is now"
play capacity | sed -n '/PROFILE/,/^$/p'
play capacity -e vgpu_capacity_platform=vsphere | sed -n '/PROFILE/,/^$/p'

say "Where to look next"
cat <<'END'
demo/cluster.yml          all that was said about both clusters
docs/getting-started.md   the same on your own clusters
make lab-up               a lab to try your own playbooks on
END
