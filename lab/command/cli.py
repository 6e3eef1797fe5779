"""The lab's command."""

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
Harvester controllers and webhooks on it. Everything binds to loopback and lives in one run directory.

In a checkout it is called like this: make -s lab ARGS='up --scenario mixed'"""

FAULTS = f"""Faults are switched on by name and off with --off:

{faults.describe_all()}

A reboot of a node has a command of its own: lab reboot."""


RECORDING = """Without --steps nothing is written to the cluster: the recording holds how its GPUs stand and what
happens to them for a while. What somebody else changes meanwhile, say in Harvester's own pages, is in it as well.

With --steps the requests of a file are sent, and their answers and effects recorded:

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
      hostAction: reboot of gpu-a        # you are asked to do it

Requests may be about GPU devices, nodes, addons, KubeVirt and virtual machines, and nothing else. The file holds no
credentials, certificates, addresses or names of machines other than nodes, and of a virtual machine only what it
asks of GPUs; look it through before you send it all the same."""


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog="lab", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--run-dir",
        type=Path,
        default=hints.default_run_dir(),
        help="where the lab lives; several labs run side by side in different directories"
        " (default: $LAB_RUN_DIR, else build/lab)",
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
        "--scenario", default="default", help=f"a shipped one ({', '.join(scenario.names())}) or a YAML file"
    )
    start.add_argument("--nodes", type=int, metavar="N", help="how many nodes a scenario such as fleet has")
    start.add_argument("--harvester-version", default=versions.DEFAULT, choices=list(versions.VERSIONS))
    start.add_argument("--vsphere-version", default=API_VERSIONS[0], choices=API_VERSIONS)
    start.add_argument(
        "--speed",
        type=float,
        default=1.0,
        help="simulated seconds per second; 0 stops the clock, which then moves by lab advance alone (default: 1)",
    )
    start.add_argument(
        "--without",
        action="append",
        default=[],
        choices=running.PARTS,
        help="leave a part out: without kubevirt VMs are stored, not run; may be given several times",
    )
    start.add_argument(
        "--with",
        dest="extra",
        action="append",
        default=[],
        choices=running.EXTRAS,
        help="start more than usual: a Rancher that makes guest clusters of VMs",
    )
    start.add_argument("--only", choices=("harvester", "vsphere"), help="start one platform of the scenario alone")
    command("down", "stop the lab, whatever state it is in")
    command("status", "show what runs, and the simulated time")
    command("env", f'print what to export (eval "$({hints.call("env")})")')
    command("reset", "bring the lab back to the beginning of its scenario, without faults; what runs goes on running")
    fault = command("fault", "switch a fault on or off", FAULTS)
    fault.add_argument("name")
    fault.add_argument("--off", action="store_true", help="switch it off again")
    fault.add_argument("--node", help="only on this node, where the fault has one")
    fault.add_argument(
        "--every", type=int, metavar="N", help=f"which share of the requests: 1 for all (default: {faults.EVERY})"
    )
    fault.add_argument(
        "--seconds", type=float, metavar="S", help=f"how slow, in real time (default: {faults.SLOW_SECONDS:g})"
    )
    reboot = command("reboot", "reboot a node: its GPUs forget SR-IOV and vGPU types")
    reboot.add_argument("node", metavar="NODE")
    advance = command("advance", "move the simulated time forward and wait until everything due has happened")
    advance.add_argument("seconds", type=float, metavar="SECONDS")
    logs = command("logs", "print the logs of all parts, or of those named")
    logs.add_argument("names", nargs="*", metavar="PART")
    replay = command("replay", "play recordings of real controllers on the lab and compare")
    replay.add_argument("--traces", type=Path, required=True, help="a directory of recordings")
    replay.add_argument("--only", help="a shell pattern of file names, e.g. 'v1.8-s0*'")
    replay.add_argument("--verbose", action="store_true", help="also say what agrees")
    record = command("record", "write down how a cluster behaves, as a recording that lab replay plays", RECORDING)
    record.add_argument("--name", required=True, help="of the recording: the file is <version>-<name>.yaml")
    record.add_argument("--directory", type=Path, default=Path(), help="where to put the file (default: here)")
    record.add_argument("--kubeconfig", type=Path, help="of the cluster (default: $KUBECONFIG)")
    record.add_argument("--context", help="of the kubeconfig (default: its current one)")
    record.add_argument("--lab", action="store_true", help="record the lab in --run-dir, in its simulated time")
    record.add_argument("--steps", type=Path, metavar="FILE", help="steps to play; they may write to the cluster")
    record.add_argument(
        "--seconds", type=float, default=60.0, help="how long to watch, when there are no steps (default: 60)"
    )
    record.add_argument("--title", default="", help="what the recording shows")
    record.add_argument("--version", help="of Harvester, e.g. v1.8 (default: what the cluster says)")
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
    print(f'Use it: eval "$({hints.call("env", run)})"')


def _down(chosen: argparse.Namespace) -> None:
    running.stop(chosen.run_dir)


def _status(chosen: argparse.Namespace) -> int:
    run = RunDir(chosen.run_dir)
    parts = running.all_processes(run)
    if not parts:
        print(f"No lab in {run.path}.")
        return 1
    for process in parts:
        print(f"{process.name:26} {'running' if process.running else 'ended':8} pid {process.pid}")
    if processes.is_running(run, running.HARVESTER):
        _print_harvester(Control(run).status())
    return 0 if all(process.running for process in parts) else 1


def _print_harvester(status: dict[str, Any]) -> None:
    pace = f"speed {status['speed']:g}" if status["speed"] else "clock stands"
    print(
        f"Harvester {status['harvester']}, scenario {status['scenario']}, simulated time {status['now']:.1f} s, {pace}"
    )
    down = [node for node, alive in status["processes"].items() if not alive]
    if down:
        print(f"pcidevices process down on {', '.join(down)}")
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
