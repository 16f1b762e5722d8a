"""The kinds of object stores: schemes of their URLs, filesystems of fsspec that stand for them, and adapters."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec import AbstractFileSystem

from rollingfs import STORES
from rollingfs.runtime.values import value_class

if TYPE_CHECKING:
    from rollingfs.backend.objects.backend import ObjectBackend

FSSPEC_OPTIONS = frozenset(
    {
        "asynchronous",
        "batch_size",
        "listings_expiry_time",
        "loop",
        "max_paths",
        "skip_instance_cache",
        "use_listings_cache",
    }
)
"""Options that fsspec itself gives to any filesystem."""
OBSTORE = "obstore.fsspec.FsspecStore"
"""obstore's own filesystem, which may be registered for any scheme."""

logger = logging.getLogger("rollingfs")


@value_class
class Cloud:
    """A kind of object store.

    The function that opens it makes an `ObjectBackend` of a filesystem of fsspec and `max_concurrency`. It raises
    `ImportError` or `ValueError` for a filesystem that it cannot express.
    """

    name: str
    schemes: frozenset[str]
    """Schemes of its URLs."""
    filesystem: str
    """The class of fsspec's filesystem for it."""
    opener: str
    """The function that opens it, by its name below `rollingfs.backend.objects`."""
    extra: str
    """The extra of rollingfs that installs the client."""
    is_direct: bool = False
    """Whether it needs no filesystem of fsspec. Then the opener's module also has ``open_options(protocol, options,
    asynchronous, loop, max_concurrency)``, ``OPTIONS`` (their names), and ``options_of_url(url)``."""
    may_differ: bool = True
    """Whether a filesystem with options that the adapter lacks is used as a store without conditional writes."""

    @property
    def module(self) -> ModuleType:
        """The module of its opener; `ImportError` names what to install."""
        try:
            return importlib.import_module(f"rollingfs.backend.objects.{self.opener.rpartition('.')[0]}")
        except ModuleNotFoundError as error:
            raise ImportError(f"this store needs {error.name}: pip install 'rollingfs[{self.extra}]'") from error

    def open(self, fs: AbstractFileSystem, max_concurrency: int | None) -> ObjectBackend:
        """Return the backend for a filesystem; errors as of the function that opens it."""
        opened: ObjectBackend = getattr(self.module, self.opener.rpartition(".")[2])(fs, max_concurrency)
        return opened


CLOUDS = (
    Cloud("S3", frozenset(STORES["S3"]), "s3fs.core.S3FileSystem", "s3.backend.open_s3", "s3", may_differ=False),
    Cloud(
        "Azure",
        frozenset({*STORES["Azure"], "azure", "adl"}),
        "adlfs.spec.AzureBlobFileSystem",
        "azure.open_filesystem",
        "az",
        is_direct=True,
    ),
    Cloud("Google's storage", frozenset(STORES["Google"]), "gcsfs.core.GCSFileSystem", "google.open_google", "gcs"),
)


def cloud_of(protocol: str) -> Cloud | None:
    """Return the kind of object store that a scheme is of, or None."""
    return next((cloud for cloud in CLOUDS if protocol in cloud.schemes), None)


def names_of(protocol: str) -> frozenset[str]:
    """Return all schemes of the same store."""
    cloud = cloud_of(protocol)
    return frozenset({protocol}) if cloud is None else cloud.schemes


def direct(protocol: str) -> ModuleType | None:
    """Return the module that opens a store that needs no filesystem of fsspec; None: the filesystem opens it."""
    cloud = cloud_of(protocol)
    if cloud is None or not cloud.is_direct or is_of(OBSTORE, fsspec.registry.get(protocol)):
        return None
    return cloud.module


def open_direct(
    protocol: str,
    options: Mapping[str, Any],
    asynchronous: bool = False,
    loop: Any = None,
    max_concurrency: int | None = None,
) -> ObjectBackend | None:
    """Return the backend for a store that needs no filesystem of fsspec, from its options; None for any other.

    Raises
    ------
    ImportError
        Its client is not installed.
    ValueError
        An option cannot be expressed.
    """
    module = direct(protocol)
    if module is None:
        return None
    own = {name: value for name, value in options.items() if name not in FSSPEC_OPTIONS}
    backend: ObjectBackend = module.open_options(protocol, own, asynchronous, loop, max_concurrency)
    return backend


def open_filesystem(fs: AbstractFileSystem, max_concurrency: int | None = None) -> ObjectBackend | None:
    """Return the backend for a filesystem of a cloud; the filesystem is not altered.

    None: it is of no cloud, or has options that its backend lacks.

    Raises
    ------
    ValueError
        An s3fs filesystem has fewer connections than `max_concurrency`.
    """
    is_obstore = is_of(OBSTORE, type(fs))
    for cloud in CLOUDS:
        if is_of(cloud.filesystem, type(fs)) or (is_obstore and cloud.is_direct):
            try:
                return cloud.open(fs, max_concurrency)
            except (ImportError, ValueError) as error:
                if not cloud.may_differ:
                    raise
                logger.info("%s is used as a store without conditional writes: %s", type(fs).__name__, error)
    return None


def require_client(protocol: str) -> None:
    """Refuse a store if its client is missing, and name what to install.

    Raises
    ------
    ImportError
        It is not installed.
    """
    cloud, registered = cloud_of(protocol), fsspec.registry.get(protocol)
    if cloud is None or cloud.is_direct or not (registered is None or is_of(cloud.filesystem, registered)):
        return
    client = cloud.filesystem.partition(".")[0]
    if importlib.util.find_spec(client) is None:
        raise ImportError(f"segments on {cloud.name} need {client}: pip install 'rollingfs[{cloud.extra}]'")


def is_of(name: str, cls: type[AbstractFileSystem] | None) -> bool:
    """Return whether a class is the one of this full name, or derived from it."""
    # not imported for the question: a filesystem exists only where its module is
    module, _, kind = name.rpartition(".")
    found = getattr(sys.modules.get(module), kind, None)
    return None not in (found, cls) and issubclass(cls, found)  # type: ignore[arg-type]


def options_of(fs: AbstractFileSystem) -> dict[str, Any]:
    """Return the options that a filesystem was made with, by their names."""
    names = list(inspect.signature(type(fs).__init__).parameters)[1:]
    options: dict[str, Any] = dict(zip(names, fs.storage_args, strict=False)) | fs.storage_options
    return options
