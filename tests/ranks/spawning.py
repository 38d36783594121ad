"""Start the processes of one training as ``torchrun`` would, without its agent, which takes a second to import."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def free_port():
    """Yield a port at which the first rank may listen; the system gives it to nobody else before the end."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def rank_environment(rank, size, port):
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    fixed = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return os.environ | {name: str(value) for name, value in told.items()} | fixed | {"PYTHONPATH": paths}


def run_ranks(arguments, size=2, cwd=None, seconds=600):
    """Run ``python ARGUMENTS`` as every rank; return exit code, stdout and stderr of each."""
    with free_port() as port:
        started = [
            subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                env=rank_environment(rank, size, port),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=cwd,
            )
            for rank in range(size)
        ]
        try:
            told = [process.communicate(timeout=seconds) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
    return [(process.returncode, *texts) for process, texts in zip(started, told, strict=True)]
