"""Options and output of the command `lab`."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from lab import faults, hints
from lab.errors import LabError
from lab.harvester import versions
from lab.lifecycle import running
from lab.lifecycle.control import Control
from lab.programs import processes
from lab.rundir import RunDir
from lab.scenarios import scenario
from lab.vsphere.inventory import API_VERSIONS

ABOUT = """A data centre on a laptop: a real Kubernetes control plane and KubeVirt, with simulated GPU nodes,
Harvester controllers and webhooks. Everything listens on loopback and is stored in one run directory.

Run it from a checkout: make -s lab ARGS='up --scenario mixed'"""

FAULTS = f"""Name a fault to switch it on; add --off to switch it off:

{faults.describe_all()}

To reboot a node, use lab reboot."""


RECORDING = """Without --steps nothing is written to the cluster. The recording contains the state of its GPUs and
how that changes for a while, including what others change in the meantime, for example in the Harvester UI.

With --steps the requests of a file are sent, and their responses and effects are recorded:

  title: one vGPU on and off
  steps:
    - title: on
      request:
        method: PATCH
        path: /apis/devices.harvesterhci.io/v1beta1/vgpudevices/gpu-a-000008004
        contentType: application/merge-patch+json
        body: {spec: {enabled: true, vGPUTypeName: NVIDIA A2-4Q}}
      after: [PCIDeviceClaim/gpu-a-000008004, VGPUDevices of gpu-a]
    - title: configured
      wait: {until: gpu-a-000008004 status.vGPUStatus == vGPUConfigured, timeout: 60}
    - title: what follows
      observe: {seconds: 15}
    - title: the node is restarted
      hostAction: reboot of gpu-a        # you are prompted to do it

Requests may concern GPU devices, nodes, addons, KubeVirt and virtual machines only. The file contains no credentials,
certificates or addresses, no host names except those of nodes, and of a virtual machine only its GPU requests.
Review it before you share it."""


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog="lab", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--run-dir",
        type=Path,
        default=hints.default_run_dir(),
        help="directory of the lab; use different directories to run several labs (default: $LAB_RUN_DIR or build/lab)",
    )
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, epilog: str | None = None) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=epilog,
            parents=[common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    start = command("up", "start a lab and return when it is ready")
    start.add_argument(
        "--scenario", default="default", help=f"name ({', '.join(scenario.names())}) or YAML file (default: default)"
    )
    start.add_argument("--nodes", type=int, metavar="N", help="number of nodes, for scenarios such as fleet")
    start.add_argument("--harvester-version", default=versions.DEFAULT, choices=list(versions.VERSIONS))
    start.add_argument("--vsphere-version", default=API_VERSIONS[0], choices=API_VERSIONS)
    start.add_argument(
        "--speed",
        type=float,
        default=1.0,
        help="simulated seconds per second; 0 stops the clock until lab advance (default: 1)",
    )
    start.add_argument(
        "--without",
        action="append",
        default=[],
        choices=running.PARTS,
        help="omit a part; without kubevirt, VMs are stored but do not run (can be repeated)",
    )
    start.add_argument(
        "--with",
        dest="extra",
        action="append",
        default=[],
        choices=running.EXTRAS,
        help="add a part: a Rancher that creates guest clusters from VMs",
    )
    start.add_argument("--only", choices=("harvester", "vsphere"), help="start only one platform of the scenario")
    command("down", "stop the lab")
    command("status", "show the processes of the lab, the simulated time and the active faults")
    command("env", f'print the environment variables to export (eval "$({hints.call("env")})")')
    command("reset", "reset the lab to the initial state of its scenario, without faults and without a restart")
    fault = command("fault", "switch a fault on or off", FAULTS)
    fault.add_argument("name")
    fault.add_argument("--off", action="store_true", help="switch the fault off")
    fault.add_argument("--node", help="limit the fault to this node")
    fault.add_argument(
        "--every", type=int, metavar="N", help=f"affect every N-th request; 1 affects all (default: {faults.EVERY})"
    )
    fault.add_argument(
        "--seconds", type=float, metavar="S", help=f"delay in real seconds (default: {faults.SLOW_SECONDS:g})"
    )
    reboot = command("reboot", "reboot a node, which resets SR-IOV and vGPU types of its GPUs")
    reboot.add_argument("node", metavar="NODE")
    advance = command("advance", "advance the simulated time and wait until all due events have happened")
    advance.add_argument("seconds", type=float, metavar="SECONDS")
    logs = command("logs", "print the logs of all parts or of the named parts")
    logs.add_argument("names", nargs="*", metavar="PART")
    replay = command("replay", "replay recordings of real controllers on a lab and compare the results")
    replay.add_argument("--traces", type=Path, required=True, help="directory with recordings")
    replay.add_argument("--only", help="shell pattern of file names, for example 'v1.8-s0*'")
    replay.add_argument("--verbose", action="store_true", help="also list the steps that agree")
    record = command("record", "record the behavior of a cluster for lab replay", RECORDING)
    record.add_argument("--name", required=True, help="name of the recording; the file is <version>-<name>.yaml")
    record.add_argument(
        "--directory", type=Path, default=Path(), help="directory for the file (default: current directory)"
    )
    record.add_argument("--kubeconfig", type=Path, help="kubeconfig of the cluster (default: $KUBECONFIG)")
    record.add_argument("--context", help="context of the kubeconfig (default: current context)")
    record.add_argument("--lab", action="store_true", help="record the lab in --run-dir in simulated time")
    record.add_argument(
        "--steps", type=Path, metavar="FILE", help="file with steps to play, which may write to the cluster"
    )
    record.add_argument(
        "--seconds", type=float, default=60.0, help="how long to observe the cluster without --steps (default: 60)"
    )
    record.add_argument("--title", default="", help="title of the recording")
    record.add_argument("--version", help="Harvester version, for example v1.8 (default: version of the cluster)")
    return main


def main(arguments: list[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    try:
        return int(globals()[f"_{chosen.command}"](chosen) or 0)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1


# Starting takes packages that the other commands do without, so they are imported where they are needed.
def _up(chosen: argparse.Namespace) -> None:
    from lab.lifecycle import up

    run = up.start(
        chosen.run_dir,
        scenario=chosen.scenario,
        nodes=chosen.nodes,
        harvester_version=chosen.harvester_version,
        vsphere_version=chosen.vsphere_version,
        speed=chosen.speed,
        without=chosen.without,
        extra=chosen.extra,
        only=chosen.only,
    )
    parts = ", ".join(process.name for process in running.all_processes(run))
    print(f"The lab is up in {run.path}: {parts}.")
    print(f'To use it: eval "$({hints.call("env", run)})"')


def _down(chosen: argparse.Namespace) -> None:
    running.stop(chosen.run_dir)


def _status(chosen: argparse.Namespace) -> int:
    run = RunDir(chosen.run_dir)
    parts = running.all_processes(run)
    if not parts:
        print(f"No lab is running in {run.path}.")
        return 1
    for process in parts:
        print(f"{process.name:26} {'running' if process.running else 'exited':8} pid {process.pid}")
    if processes.is_running(run, running.HARVESTER):
        _print_harvester(Control(run).status())
    return 0 if all(process.running for process in parts) else 1


def _print_harvester(status: dict[str, Any]) -> None:
    pace = f"speed {status['speed']:g}" if status["speed"] else "clock stopped"
    print(
        f"Harvester {status['harvester']}, scenario {status['scenario']}, simulated time {status['now']:.1f} s, {pace}"
    )
    down = [node for node, alive in status["processes"].items() if not alive]
    if down:
        print(f"pcidevices process is down on {', '.join(down)}")
    for name, nodes in status["faults"].items():
        print(f"fault {name}{' on ' + ', '.join(nodes) if nodes else ''}")


def _env(chosen: argparse.Namespace) -> None:
    for name, value in running.environment(RunDir(chosen.run_dir)).items():
        print(f"export {name}={shlex.quote(value)}")


def _reset(chosen: argparse.Namespace) -> None:
    from lab.lifecycle import up

    up.reset(RunDir(chosen.run_dir))


def _fault(chosen: argparse.Namespace) -> None:
    Control(chosen.run_dir).fault(
        chosen.name, on=not chosen.off, node=chosen.node, every=chosen.every, seconds=chosen.seconds
    )


def _reboot(chosen: argparse.Namespace) -> None:
    Control(chosen.run_dir).reboot(chosen.node)


def _advance(chosen: argparse.Namespace) -> None:
    print(f"{Control(chosen.run_dir).advance(chosen.seconds):.1f}")


def _logs(chosen: argparse.Namespace) -> None:
    for path in running.log_files(RunDir(chosen.run_dir), chosen.names):
        print(f"==> {path.stem} <==")
        print(path.read_text(errors="replace"), end="")


def _replay(chosen: argparse.Namespace) -> int:
    from lab import replay

    return replay.main(chosen.traces, only=chosen.only, verbose=chosen.verbose, run_root=chosen.run_dir)


def _record(chosen: argparse.Namespace) -> None:
    from lab import record

    wanted = record.RecordingRequest(
        directory=chosen.directory,
        name=chosen.name,
        kubeconfig=chosen.kubeconfig,
        context=chosen.context,
        lab=chosen.run_dir if chosen.lab else None,
        steps=chosen.steps,
        seconds=chosen.seconds,
        title=chosen.title,
        version=chosen.version,
    )
    print(record.record(wanted))
