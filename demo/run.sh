#!/usr/bin/env bash
# Bare hosts in labs of their own become GPU clusters, on vSphere and on Harvester. The labs are stopped whatever happens.
# vSphere comes first: its lab needs one small program, and the others are compiled meanwhile if they do not exist yet.
set -euo pipefail
cd "$(dirname "$0")/.."
run_dir=${DEMO_RUN_DIR:-build/demo-lab}
cluster_file=${DEMO_CLUSTER:-demo/cluster.yml}
map=${DEMO_MAP:-build/fleet.html}
plan=${DEMO_PLAN:-build/plan.html}

stop_labs() {
    for platform in vsphere harvester capv; do
        python -m lab down --run-dir "$run_dir/$platform"
    done
}
# Ctrl-C reaches this twice, from the terminal and from make.
trap 'trap "" INT TERM; stop_labs' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() {
    printf '\n\033[1m== %s\033[0m\n' "$*"
    python -m lab.programs.prebuild --status
}

play() {
    python demo/interruptible.py ansible-playbook "vgpu.fleet.$1" -e "@$cluster_file" "${@:2}"
}

start_lab() {
    python -m lab up --scenario demo/lab.yaml --run-dir "$run_dir/$1" --only "${2:-$1}" "${@:3}"
    environment=$(python -m lab env --run-dir "$run_dir/$1")
    eval "$environment"
}

play_again() {
    again=$(play "$1" --skip-tags "${2:-report}" | sed '1,/^PLAY RECAP/d')
    echo "$again"
    if grep -q 'changed=[1-9]' <<<"$again"; then
        echo "A second run of $1 changed something." >&2
        exit 1
    fi
}

show_capacity() {
    # Print the table only, without the headings of the play and the recap.
    play capacity -e vgpu_capacity_platform="$1" -e vgpu_capacity_name="$1" \
        -e vgpu_capacity_html="$map" |
        sed '1,/^PLAY \[/d; /^PLAY RECAP/,$d'
}

export ANSIBLE_COLLECTIONS_PATH=$PWD/build/installed ANSIBLE_CALLBACK_RESULT_FORMAT=yaml ANSIBLE_LOCALHOST_WARNING=false \
    ANSIBLE_INVENTORY_UNPARSED_WARNING=false ANSIBLE_DISPLAY_SKIPPED_HOSTS=false ANSIBLE_DISPLAY_OK_HOSTS=false \
    ANSIBLE_SHOW_CUSTOM_STATS=false

# Cluster API needs a Kubernetes API server, which may not be compiled yet.
not_yet=report,capv,operator,smoke

stop_labs # an earlier demo that was killed may have left them running

say "vSphere: a lab with two ESXi hosts with two A40 each, as they come"
start_lab vsphere
say "vSphere: shared direct graphics, VMs (what changes is shown)"
play vsphere_gpu_cluster --skip-tags "$not_yet"
say "vSphere once more: nothing is left to change"
play_again vsphere_gpu_cluster "$not_yet"
say "vSphere: what there is now"
show_capacity vsphere

say "Harvester: a lab with two nodes with an A2 each and a Rancher, as they come"
start_lab harvester harvester --speed 50 --with rancher
say "Harvester: addons, driver, SR-IOV, vGPUs, VMs, a cluster by Rancher, and a test of its GPUs (what changes is shown)"
ANSIBLE_SHOW_CUSTOM_STATS=true play harvester_gpu_cluster --skip-tags report
say "Harvester once more: nothing is left to change"
play_again harvester_gpu_cluster
say "Harvester: what there is now"
show_capacity harvester

say "Harvester: what one more vGPU on each node would change (a dry run)"
play harvester_gpu_cluster --check --tags node -e vgpu_plan_html="$plan" \
    -e '{"harvester_gpu_node_layout": [{"profile": "A2-4Q", "count": 3, "per": "node"}, {"profile": "A2-4C", "count": 1, "nodes": ["gpu-b"]}]}'

say "vSphere again: bare hosts, and a management cluster with Cluster API"
start_lab capv vsphere --speed 50 --with capv
say "vSphere: shared direct graphics, a cluster by Cluster API, and a test of its GPUs (what changes is shown)"
DEMO_WORKLOAD_KUBECONFIG="$(realpath "$run_dir")/capv/ml.yaml" ANSIBLE_SHOW_CUSTOM_STATS=true \
    play vsphere_gpu_cluster --skip-tags report,vm

say "Where to look next"
cat <<END
The map of both clusters:  file://$(realpath "$map")
The plan of the dry run:   file://$(realpath "$plan")

demo/cluster.yml          the variables that describe both clusters
docs/getting-started.md   the same steps on your own clusters
make lab-up               start a lab for your own playbooks
END
