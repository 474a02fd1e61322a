"""Real servers on loopback for tests: OpenSSH, and Slurm with munge. Each is stopped at the end."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

SECONDS = 90  # until a server must be up, or gone, on a busy machine
SSHD_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
Subsystem sftp internal-sftp {options}
"""


def program(name: str, package: str) -> str:
    """Return the path of a system program; skip the test where it is missing."""
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if not path:
        pytest.skip(f"{name} is not installed (Debian: {package})")
    return path


def free_port() -> int:
    """Return a TCP port of the loopback interface on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def answers(port: int) -> bool:
    """Tell whether somebody listens on a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def started(*command: object, **options: object) -> Iterator[subprocess.Popen]:
    """Run a server in the foreground; stop it at the end, with all that it started."""
    process = subprocess.Popen([str(word) for word in command], process_group=0, **options)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def sshd(folder: Path, options: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """Run an SSH server with keys of its own; `options` are those of sftp-server.

    Yields the URL of its root, and variables under which clients find their key and the server's.
    """
    server = program("sshd", "openssh-server")
    for name in ("host_key", "user_key"):
        command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name)
        subprocess.run(command, check=True)
    port = free_port()
    (folder / "config").write_text(SSHD_CONFIG.format(port=port, folder=folder, options=options))
    ssh = folder / "home/.ssh"
    ssh.mkdir(parents=True)
    host = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{port} {host}\n")
    (folder / "user_key").rename(ssh / "id_ed25519")
    # It gives up privileges in this folder, which an init system would have made.
    Path("/run/sshd").mkdir(exist_ok=True) if os.geteuid() == 0 else None
    with (
        (folder / "log").open("wb") as log,
        started(server, "-D", "-e", "-f", folder / "config", stderr=log),
    ):
        wait_until(lambda: answers(port), (folder / "log").read_text())
        # SSH_AUTH_SOCK: the agent of whoever runs the test has no key for it.
        yield f"ssh://127.0.0.1:{port}", {"HOME": str(folder / "home"), "SSH_AUTH_SOCK": ""}


SLURM_CONFIG = """\
ClusterName=toy
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=2
MpiDefault=none
KillWait=2
JobRequeue=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Run munge, a Slurm controller and a node of two processors; needs root.

    Yields the variables under which Slurm's commands find the controller.
    """
    if os.geteuid():
        pytest.skip("only root can start Slurm's daemons")
    programs = {name: program(name, "slurm-wlm") for name in ("slurmctld", "slurmd", "sinfo")}
    munged = program("munged", "munge")
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(mode=0o755)
    (folder / "munge/key").write_bytes(os.urandom(128))
    (folder / "munge/key").chmod(0o400)
    config = folder / "slurm.conf"
    ports = {"controller": free_port(), "node": free_port()}
    host = socket.gethostname().partition(".")[0]
    config.write_text(SLURM_CONFIG.format(folder=folder, host=host, **ports))
    environment = {"SLURM_CONF": str(config)}
    names = ("key-file", "socket", "pid-file", "log-file", "seed-file")
    files = [f"--{name}={folder}/munge/{name.partition('-')[0]}" for name in names]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))

        def start(*command: str) -> None:
            options = {"stdout": log, "stderr": log, "env": os.environ | environment}
            stack.enter_context(started(*command, **options))

        start(munged, "--foreground", "--force", *files)
        wait_until((folder / "munge/socket").exists, "no munge")
        start(programs["slurmctld"], "-D", "-f", str(config))
        start(programs["slurmd"], "-D", "-f", str(config))
        ask = (programs["sinfo"], "--noheader", "--format=%T")
        wait_until(
            lambda: subprocess.run(
                ask, env=os.environ | environment, capture_output=True, check=False
            ).stdout.startswith(b"idle"),
            f"Slurm is not up; see {folder}/log",
        )
        try:
            yield environment
        finally:
            end_jobs(os.environ | environment)


def end_jobs(environment: dict[str, str]) -> None:
    """Cancel all jobs of a cluster and wait until the node has ended them."""
    subprocess.run(("scancel", "--partition=main"), env=environment, check=False)
    ask = ("squeue", "--noheader")
    wait_until(
        lambda: not subprocess.run(ask, env=environment, capture_output=True, check=False).stdout,
        "jobs do not end",
    )
