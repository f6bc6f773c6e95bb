"""A Slurm of our own on this machine, for as long as a block or a command runs.

    python -m tests.hpc.single_node make notebook

Real daemons on the loopback interface, as ordinary processes of the user who starts them: no systemd, root or cgroups.
All their files lie in one new directory. The nodes n1, n2 ... are made up, and all of them are this machine.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

__all__ = ["MISSING", "TOLD", "Slurm", "single_node"]

NODES, CPUS, MEGABYTES = 2, 8, 16_000
"""Made up: what jobs ask for is counted against these, and not against what the machine has."""
START_TIMEOUT, STOP_TIMEOUT = 30.0, 10.0
SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")
MISSING = [name for name in DAEMONS if shutil.which(name, path=SBIN) is None]
"""Programs without which there is no Slurm; Debian has them in munge, slurmctld, slurmd and slurm-client."""

TOLD = (
    f"no {', '.join(MISSING)} here, so no Slurm; on Debian: "
    "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
)

CONFIGURATION = """\
ClusterName=dqlab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MailProg=/bin/true
# nothing that needs root, or a kernel of its own
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
# as fast as it goes
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
KillWait=10
SlurmctldTimeout=10
SlurmdTimeout=10
ReturnToService=2
MinJobAge=60
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
{nodes}
PartitionName=usual Nodes=ALL Default=YES DefaultTime=10 MaxTime=60
PartitionName=closed Nodes=ALL MaxTime=60 State=DOWN
"""
NODE = "NodeName=n{number} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={megabytes}"


class Slurm:
    """What runs; `root` holds its files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {"SLURM_CONF": str(root / "slurm.conf"), "PATH": SBIN}

    def run(self, *command: str) -> str:
        """Run one of Slurm's commands; return what it prints."""
        return subprocess.run(
            command, env=os.environ | self.environ, capture_output=True, text=True, check=True, timeout=30
        ).stdout

    def jobs(self, states: str = "PD,R,CF,CG") -> dict[str, str]:
        """Return the state of each job by its id."""
        lines = self.run("squeue", "-h", "-t", states, "-o", "%i %t").splitlines()
        return dict(line.split() for line in lines)

    def cancel_all(self) -> None:
        """End all jobs, and wait until they are gone."""
        for job in self.jobs():
            self.run("scancel", job)
        wait_until(lambda: not self.jobs(), STOP_TIMEOUT + 10, "jobs to end")


def wait_until(condition: object, timeout: float, what: str) -> None:
    """Look until something is so."""
    deadline = time.monotonic() + timeout
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(0.1)


@contextmanager
def single_node(root: Path) -> Iterator[Slurm]:
    """Run a Slurm whose files lie in an empty directory."""
    slurm = Slurm(root)
    _configure(root)
    try:
        _start(slurm)
        yield slurm
    finally:
        with suppress(subprocess.SubprocessError, TimeoutError):
            slurm.cancel_all()
        _end(*root.glob("slurmd-*.pid"), root / "slurmctld.pid", root / "munged.pid")


def _configure(root: Path) -> None:
    root.chmod(0o755)  # munge refuses a socket in a directory that others may not enter
    (root / "state").mkdir(mode=0o700)
    key = root / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    ports = _free_ports(NODES + 1)
    nodes = [
        NODE.format(number=number, port=ports[number], cpus=CPUS, megabytes=MEGABYTES) for number in range(1, NODES + 1)
    ]
    for number in range(1, NODES + 1):
        (root / f"spool-n{number}").mkdir()
    text = CONFIGURATION.format(ports=ports, user=getpass.getuser(), root=root, nodes="\n".join(nodes))
    (root / "slurm.conf").write_text(text)
    (root / "cgroup.conf").write_text("CgroupAutomount=no\n")


def _start(slurm: Slurm) -> None:
    root = slurm.root
    munge = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "log-file": "munged.log"}
    places = [f"--{option}={root / name}" for option, name in munge.items()]
    commands = [["munged", *places, f"--seed-file={root / 'munge.seed'}"], ["slurmctld"]]
    commands += [["slurmd", "-N", f"n{number}"] for number in range(1, NODES + 1)]
    with (root / "start.log").open("a") as log:
        for command in commands:
            subprocess.run(
                command,
                env=os.environ | slurm.environ,
                check=True,
                timeout=START_TIMEOUT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def idle() -> bool:
        with suppress(subprocess.SubprocessError):
            return slurm.run("sinfo", "-h", "-N", "-p", "usual", "-t", "idle", "-o", "%N").split() == [
                f"n{number}" for number in range(1, NODES + 1)
            ]
        return False

    wait_until(idle, START_TIMEOUT, f"nodes to be idle; see {root}")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _end(*files: Path) -> None:
    """End the processes whose ids stand in files, and no others."""
    processes = []
    for file in files:
        with suppress(OSError, ValueError):
            processes.append(int(file.read_text()))
            os.kill(processes[-1], signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT
    for process in processes:
        with suppress(OSError):  # it is gone
            while time.monotonic() < deadline:
                os.kill(process, 0)
                time.sleep(0.1)
            os.kill(process, signal.SIGKILL)


def main(command: list[str]) -> int:
    """Run a command beside a Slurm; return its exit status."""
    if MISSING:
        sys.stderr.write(f"{TOLD}\n")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # daemons would outlive this process
    with (
        tempfile.TemporaryDirectory(prefix="dqlab-slurm-", ignore_cleanup_errors=True) as root,
        single_node(Path(root)) as slurm,
        subprocess.Popen(command, env=os.environ | slurm.environ) as running,
    ):
        try:
            return running.wait()
        finally:
            running.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["sinfo"]))
