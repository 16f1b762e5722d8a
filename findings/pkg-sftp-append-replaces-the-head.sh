#!/usr/bin/env bash
# A server of github.com/pkg/sftp 1.13.11 (Go) ignores SSH_FXF_APPEND: an append by its own client or by asyncssh replaces the head of the log, without an error.
#
# Guess: SSH_FXF_APPEND forces all writes to the end of the file, so that the offset of a write does not matter, as OpenSSH does; and a library that is
# server and client appends to a file that is opened with os.O_APPEND.
# Seen (2026-11-30): the server opens without O_APPEND, "as the client sends the offsets", and its own client sends offset 0, as does asyncssh 2.24.1 (sshfs 2026.8.0, the SFTP
# filesystem of fsspec): after each append the log begins with the new line, and has no more bytes. paramiko 5.1.0 looks for the end of the file when it opens it, so of two
# programs that append the second replaces lines of the first. With OpenSSH's sftp-server in its place all three append; rclone's server and MINA SSHD, tried by hand, do, too.
# Needs Debian 12, Go, Python 3.11 and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq openssh-sftp-server 2>apt.log
dpkg -x ./*.deb programs
python3 -m venv env
env/bin/pip install -q uv
VIRTUAL_ENV="$work/env" env/bin/uv pip install -q fsspec==2026.9.0 sshfs==2026.8.0 asyncssh==2.24.1 paramiko==5.1.0
mkdir files
cat >main.go <<'GO'
package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// A server as in pkg/sftp's own example: no check of who comes, on the loopback interface.
func serve(folder, program string) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(err)
	signer, err := ssh.NewSignerFromKey(key)
	must(err)
	config := &ssh.ServerConfig{NoClientAuth: true, PasswordCallback: func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) { return nil, nil }}
	config.AddHostKey(signer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		tcp, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			_, channels, requests, err := ssh.NewServerConn(tcp, config)
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			for offered := range channels {
				channel, requests, err := offered.Accept()
				if err != nil {
					return
				}
				go func() {
					for request := range requests {
						_ = request.Reply(request.Type == "subsystem", nil)
					}
				}()
				if program != "" { // OpenSSH's own, as sshd starts it
					process := exec.Command(program)
					process.Dir = folder
					process.Stdin, process.Stdout = channel, channel
					go func() { _ = process.Run(); channel.Close() }()
				} else if server, err := sftp.NewServer(channel, sftp.WithServerWorkingDirectory(folder)); err == nil {
					go func() { _ = server.Serve(); server.Close() }()
				}
			}
		}()
	}
}

// Append a line as a logger does that opens its log anew.
func add(port, path, line string) {
	connection, err := ssh.Dial("tcp", "127.0.0.1:"+port, &ssh.ClientConfig{User: "user", Auth: []ssh.AuthMethod{ssh.Password("word")}, HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	must(err)
	defer connection.Close()
	client, err := sftp.NewClient(connection)
	must(err)
	defer client.Close()
	file, err := client.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	must(err)
	_, err = io.WriteString(file, line)
	must(err)
	must(file.Close())
}

func main() {
	if os.Args[1] == "serve" {
		serve(os.Args[2], os.Args[3])
	} else {
		add(os.Args[2], os.Args[3], os.Args[4])
	}
}
GO
{ go mod init example && go get github.com/pkg/sftp@v1.13.11 golang.org/x/crypto@v0.54.0 && go build -o run .; } >go.log 2>&1
./run serve files "" >library.port &
./run serve files "$work/programs/usr/lib/openssh/sftp-server" >openssh.port &
for _ in $(seq 100); do { [ -s library.port ] && [ -s openssh.port ] && break; } || sleep 0.1; done

env/bin/python -W ignore - "$(cat openssh.port)" "$(cat library.port)" <<'PYTHON'
import os, subprocess, sys
from importlib.metadata import version

from fsspec.implementations.sftp import SFTPFileSystem
from sshfs import SSHFileSystem

print({name: version(name) for name in ("fsspec", "sshfs", "asyncssh", "paramiko")})
servers = dict(zip(("OpenSSH", "pkg/sftp"), sys.argv[1:]))
path, first = f"{os.getcwd()}/files/log", b"first\nsecond\n"
who = {"username": "user", "password": "word", "skip_instance_cache": True}


def by_fsspec(make):
    """Append by one program that opens the log anew for each line."""
    for line in (b"3rd\n", b"4th\n"):
        with make().open(path, "ab") as file:
            file.write(line)


def by_two(make):
    """Append by two programs that have the log open."""
    one, two = make().open(path, "ab"), make().open(path, "ab")
    for file, line in ((one, b"3rd\n"), (two, b"4th\n")):
        file.write(line)
        file.flush()
    one.close()
    two.close()


def by_library(port):
    for line in ("3rd\n", "4th\n"):
        subprocess.run(["./run", "add", port, path, line], check=True)


def asyncssh(port):
    return SSHFileSystem("127.0.0.1", port=int(port), known_hosts=None, **who)


def paramiko(port):
    return SFTPFileSystem("127.0.0.1", port=int(port), **who)


ways = {
    "pkg/sftp's client": by_library,
    "asyncssh": lambda port: by_fsspec(lambda: asyncssh(port)),
    "paramiko": lambda port: by_fsspec(lambda: paramiko(port)),
    "paramiko, two programs": lambda port: by_two(lambda: paramiko(port)),
}
found = {}
for server, port in servers.items():
    for name, append in ways.items():
        with open(path, "wb") as file:
            file.write(first)
        append(port)
        with open(path, "rb") as file:
            found[server, name] = file.read()
        print(f"{server}, {name}: {found[server, name]}", flush=True)
whole = first + b"3rd\n4th\n"
assert all(found["OpenSSH", name] == whole for name in ways) and found["pkg/sftp", "paramiko"] == whole
assert all(found["pkg/sftp", name] == b"4th\nt\nsecond\n" for name in ("pkg/sftp's client", "asyncssh"))
assert found["pkg/sftp", "paramiko, two programs"] == first + b"4th\n"
PYTHON
echo "pkg/sftp 1.13.11: as described"
