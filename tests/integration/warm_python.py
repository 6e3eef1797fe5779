"""A Python that starts modules in no time: each is forked from a process which has imported everything already.

Half of what a task costs is the start of the module's interpreter and its imports. Here the module that Ansible packs,
sends and starts as always runs in a copy of a warm interpreter.

    python warm_python.py serve SOCKET MODULE...    import, then run programs for whoever connects
    python warm_python.py run SOCKET PROGRAM ...    run one there, with the caller's files, environment and directory
"""

import array
import json
import os
import socket
import struct
import sys

LENGTH = struct.Struct("!I")
STATUS = struct.Struct("!i")
STANDARD = (0, 1, 2)


def request(address, argv):
    """Run a program in a copy of the warm process, and return its exit status."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        said = {"argv": list(argv), "env": dict(os.environ), "cwd": os.getcwd()}
        message = json.dumps(said).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", STANDARD))]
        connection.sendmsg([LENGTH.pack(len(message))], rights)
        connection.sendall(message)
        answer = connection.recv(STATUS.size)
    return STATUS.unpack(answer)[0] if answer else 1


def serve(address, modules):
    import atexit
    import gc
    import importlib
    import signal

    for name in modules:
        importlib.import_module(name)
    # What is there now stays; copies need not look through it again.
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        listener.settimeout(2)
        # Nobody is left to ask once the tests are gone, however they went.
        while os.getppid() == parent:
            try:
                connection, _peer = listener.accept()
            except TimeoutError:
                continue
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                # What is to be cleaned up at the end belongs to the warm process.
                atexit._clear()
                supervise(connection)
            connection.close()


def supervise(connection):
    """In a copy: run the program in a copy of the copy, and report how it ended."""
    connection.settimeout(None)
    room = socket.CMSG_SPACE(len(STANDARD) * array.array("i").itemsize)
    message, rights, _flags, _peer = connection.recvmsg(LENGTH.size, room)
    files = array.array("i")
    for _level, _kind, data in rights:
        files.frombytes(data)
    (length,) = LENGTH.unpack(message)
    said = b""
    while len(said) < length:
        said += connection.recv(length - len(said))
    worker = os.fork()
    if worker == 0:
        connection.close()
        execute(json.loads(said), files)
    _pid, status = os.waitpid(worker, 0)
    connection.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def execute(said, files):
    import atexit
    import runpy

    for number, file in zip(STANDARD, files, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(said["env"])
    os.chdir(said["cwd"])
    sys.argv = said["argv"]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        status = 1
    # As an interpreter ends, apart from taking everything to pieces that it had imported.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    role, address, *rest = sys.argv[1:]
    if role == "serve":
        serve(address, rest)
    else:
        sys.exit(request(address, rest))
