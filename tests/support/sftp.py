"""A server for SFTP on loopback, over a folder of the disk."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko

_WAIT_S_MAX = 60.0


class _Anybody(paramiko.ServerInterface):
    def check_auth_password(self, username: str, password: str) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


class _Handle(paramiko.SFTPHandle):
    def stat(self) -> Any:
        return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))


def _answered(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb of a disk, whose errors are answers of the protocol."""

    def answered(self: _Folder, *args: Any) -> Any:
        try:
            found = verb(self, *args)
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)
        return paramiko.SFTP_OK if found is None else found

    return answered


class _Folder(paramiko.SFTPServerInterface):
    def __init__(self, server: paramiko.ServerInterface, root: Path) -> None:
        super().__init__(server)
        self._root = str(root)

    def _real(self, path: str) -> str:
        return self._root + self.canonicalize(path)

    @_answered
    def list_folder(self, path: str) -> Any:
        return [paramiko.SFTPAttributes.from_stat(entry.stat(), entry.name) for entry in os.scandir(self._real(path))]

    @_answered
    def stat(self, path: str) -> Any:
        return paramiko.SFTPAttributes.from_stat(os.stat(self._real(path)), os.path.basename(path))

    lstat = stat

    @_answered
    def open(self, path: str, flags: int, attr: Any) -> Any:
        descriptor = os.open(self._real(path), flags, 0o666)
        mode = "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "r+b" if flags & os.O_ACCMODE == os.O_RDWR else "wb"
        handle = _Handle(flags)
        handle.readfile = handle.writefile = os.fdopen(descriptor, mode)
        return handle

    @_answered
    def remove(self, path: str) -> None:
        os.remove(self._real(path))

    @_answered
    def posix_rename(self, oldpath: str, newpath: str) -> None:
        os.replace(self._real(oldpath), self._real(newpath))

    @_answered
    def mkdir(self, path: str, attr: Any) -> None:
        os.mkdir(self._real(path))

    @_answered
    def rmdir(self, path: str) -> None:
        os.rmdir(self._real(path))


@contextlib.contextmanager
def serving(root: Path) -> Iterator[int]:
    """Serve a folder to anybody; the port."""
    key, transports = paramiko.RSAKey.generate(2048), []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # the listener is closed
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Folder, root)
            transports.append(transport)
            transport.start_server(server=_Anybody())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for transport in transports:
                transport.close()
            thread.join(_WAIT_S_MAX)
