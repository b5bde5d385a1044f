"""Joining a cluster for a command: from the words of its options to the machines that do its work.

Builds and exact runs on many machines, by dask.distributed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lab.core.errors import HostFailed, UserError
from lab.core.executor import Executor
from lab.core.progress import Progress

_PATIENCE_S = 10


@contextmanager
def connect(cluster: str | None, share: str | None, progress: Progress) -> Iterator[Executor | None]:
    """A cluster as the executor of a command; None without an address."""
    if cluster is None:
        yield None
        return
    if not share:
        raise UserError(
            "--cluster needs --share: a folder or an object store that all machines reach",
            hint="e.g. --share /net/lab, or --share s3://bucket/lab",
        )
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port

        from lab.cluster.client import ClusterExecutor
        from lab.cluster.share import Share
    except ImportError as error:
        raise HostFailed(
            f"--cluster needs a library that is not installed: {error.name}",
            hint="pip install 'kernel-ab-lab[cluster]'",
        ) from error
    try:
        get_address_host_port(cluster)  # a client of an address that is none complains again when it is collected
    except ValueError as error:
        raise UserError(f"--cluster {cluster}: {error}", hint="e.g. --cluster tcp://scheduler:8786") from error
    place = Share(share)
    place.require_writable()
    try:
        client = Client(cluster, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise HostFailed(f"no cluster answers at {cluster}: {error}", hint="see docs/cluster.md") from error
    executor = ClusterExecutor(client, place, progress)
    try:
        yield executor
    finally:
        executor.stop()
        client.close()


def exact_only(cluster: str | None, mode: str) -> str:
    """The mode on a cluster: pairs of live mode stay on one host, one at a time."""
    if cluster is None:
        return mode
    if mode == "live":
        raise UserError("live mode measures on this host alone, and takes no --cluster", hint="or measure --mode exact")
    return "exact"
