# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files on the controller that several clusters write to while other programs read them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...module_utils.errors import FleetError

MODE = 0o644
OUTPUT_VARIABLE = "vgpu_fleet_output_dir"


class CannotWrite(FleetError):
    code = "cannot_write"


def output_folder(templar: Any, task_vars: Mapping[str, Any] | None) -> str:
    """Return the folder for relative paths that the user has chosen for the run, or an empty text."""
    return str(templar.template((task_vars or {}).get(OUTPUT_VARIABLE) or ""))


def output_path(path: str, folder: str) -> str:
    """Return a path of a task, relative to the output folder of the run if there is one."""
    return path if not path or not folder else os.path.join(os.path.expanduser(folder), os.path.expanduser(path))


def rewrite(path: str, change: Callable[[str], str], *, dry_run: bool = False) -> str:
    """Replace a file's text with the output of `change`, and return the file's path.

    A relative path is relative to the folder in which ansible-playbook was started. Readers see either the old text or
    the new text, and writers wait for each other.
    """
    target = Path(os.path.realpath(os.path.expanduser(path)))
    try:
        with _locked(target.parent):
            text = change(target.read_text(encoding="utf-8") if target.exists() else "")
            if not dry_run:
                _replace(target, text)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise CannotWrite(
            f"{target} cannot be written: {reason}.",
            hint="Name a file in a folder that exists and that the user of ansible-playbook can write to.",
        ) from error
    except FleetError as error:
        raise CannotWrite(f"{target} cannot be written: {error.message}", hint=error.hint) from error
    return str(target)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder. A lock on the file would apply to the old file, and a lock file would stay behind."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(target: Path, text: str) -> None:
    mode = target.stat().st_mode & 0o777 if target.exists() else MODE
    # The node exporter reads all files that end in .prom.
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
