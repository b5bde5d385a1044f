"""A dask cluster for kernel builds and guests of exact mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lab.core.errors import HostFailed, UserError
from lab.core.executor import Executor
from lab.core.progress import Progress

_TIMEOUT_S = 10


@contextmanager
def connect(cluster: str | None, share: str | None, progress: Progress) -> Iterator[Executor | None]:
    """Connect to a cluster as the executor of a command; None without an address."""
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
        get_address_host_port(cluster)  # a `Client` with a malformed address fails a second time when it is collected
    except ValueError as error:
        raise UserError(f"--cluster {cluster}: {error}", hint="e.g. --cluster tcp://scheduler:8786") from error
    storage = Share(share)
    storage.require_writable()
    try:
        client = Client(cluster, timeout=_TIMEOUT_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise HostFailed(f"no cluster answers at {cluster}: {error}", hint="see docs/cluster.md") from error
    except TypeError as error:  # dask's, for a tls:// address without certificates in its settings
        raise HostFailed(
            f"no certificate to connect to {cluster} with", hint="set those of dask: see docs/cluster.md"
        ) from error
    executor = ClusterExecutor(client, storage, progress)
    try:
        yield executor
    finally:
        executor.stop()
        client.close()


def exact_only(cluster: str | None, mode: str) -> str:
    """The mode of a command: with a cluster always exact, because live mode measures pairs on one host."""
    if cluster is None:
        return mode
    if mode == "live":
        raise UserError("live mode measures on this host alone, and refuses --cluster", hint="or measure --mode exact")
    return "exact"
