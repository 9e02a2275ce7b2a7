#!/usr/bin/env python3
"""Runs the containers of the Kubernetes manifests with the image, in namespaces of this machine.

    pods.py IMAGE

Run this as root at the top of a checkout. Each container gets the user, the read-only file system, the
volumes, the arguments and the probes of its manifest, and has no capabilities. Its system calls are not
filtered. If the binary is not static, its libraries come from this machine. The exit code is 77 if this
machine has no such namespaces. Needs openssl 3 and PyYAML.
"""

import ctypes
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import yaml

MANIFESTS = Path("docs/operate/kubernetes")
DEMO = Path("tests/trees/demo")
SKILL = "triage-logs/SKILL.md"
SECONDS = 60
# Fields of the pods that the manifests copy into environment variables.
FIELDS = {"metadata.name": "agent", "spec.nodeName": "node-1"}
# mount(2), prctl(2) and netdevice(7).
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def fail(message):
    sys.exit(f"pods: {message}")


def unpack(archive, directory):
    """Unpacks an image. Returns its configuration and its files."""
    tarfile.open(archive).extractall(directory / "layout")

    def blob(descriptor):
        kind, digest = descriptor["digest"].split(":")
        path = directory / "layout/blobs" / kind / digest
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest or len(content) != descriptor["size"]:
            fail(f"the blob {digest} has another content")
        return path

    index = json.loads((directory / "layout/index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]).read_text())
    config = json.loads(blob(manifest["config"]).read_text())
    for layer in manifest["layers"]:
        subprocess.run(["tar", "-xzpf", blob(layer), "--numeric-owner", "-C", directory / "root"], check=True)
    root = directory / "root"
    # The files of an image with a binary that is not static, for tests without a static build.
    for path in re.findall(r"(/\S+) \(0x", run(["ldd", str(root / "usr/bin/caproot")]).stdout):
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path[1:])
    return config["config"], root


def enter(spec):
    """Becomes the container: runs in new namespaces, as root."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source, target, kind, flags):
        if libc.mount(os.fsencode(source), os.fsencode(target), kind, flags, None):
            raise OSError(ctypes.get_errno(), f"mount {target}")

    root = spec["root"]
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount(root, root, None, MS_BIND)
    os.makedirs(root + "/proc", exist_ok=True)
    mount("proc", root + "/proc", b"proc", 0)
    for source, target, is_read_only in spec["mounts"]:
        os.makedirs(root + target, exist_ok=True)
        mount(source, root + target, None, MS_BIND)
        if is_read_only:
            mount("none", root + target, None, MS_BIND | MS_REMOUNT | MS_RDONLY)
    if spec["read_only"]:
        mount("none", root, None, MS_BIND | MS_REMOUNT | MS_RDONLY)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    os.chroot(root)
    os.chdir("/")
    capability = 0
    while libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    os.setgroups(spec["groups"])
    os.setgid(spec["gid"])
    os.setuid(spec["uid"])
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.execve(spec["args"][0], spec["args"], spec["env"])


def value_of(variable):
    """Returns the value of an environment variable of a manifest."""
    if "value" in variable:
        return variable["value"]
    return FIELDS[variable["valueFrom"]["fieldRef"]["fieldPath"]]


class Container:
    """Container of a manifest, with a directory of this machine for each volume."""

    def __init__(self, image, pod, container, volumes):
        self.config, self.files = image
        self.pod = pod.get("securityContext", {})
        self.container, self.volumes = container, volumes
        self.init = self.lines = None

    def spec(self, args, groups):
        security = self.container["securityContext"]
        if security["capabilities"]["drop"] != ["ALL"] or security["allowPrivilegeEscalation"]:
            fail(f"{self.container['name']} keeps privileges")
        env = dict(variable.split("=", 1) for variable in self.config["Env"])
        env.update((variable["name"], value_of(variable)) for variable in self.container.get("env", []))
        # As the kubelet expands references to variables.
        args = [re.sub(r"\$\((\w+)\)", lambda found: env[found[1]], argument) for argument in args]
        return {
            "root": str(self.files),
            "args": self.config["Entrypoint"] + args,
            "env": env,
            "uid": security["runAsUser"],
            "gid": security["runAsGroup"],
            "groups": groups,
            "read_only": security.get("readOnlyRootFilesystem", False),
            "mounts": [
                (str(self.volumes[mount["name"]]), mount["mountPath"], mount.get("readOnly", False))
                for mount in self.container["volumeMounts"]
            ],
        }

    def groups(self):
        """Supplementary groups of the processes of the pod."""
        groups = self.pod.get("supplementalGroups", [])
        return [*groups, self.pod["fsGroup"]] if "fsGroup" in self.pod else groups

    def command(self, args, groups=None):
        """Command that runs the program of the image in a new container."""
        spec = json.dumps(self.spec(args, self.groups() if groups is None else groups))
        namespaces = ["--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child"]
        return ["unshare", *namespaces, sys.executable, __file__, "--enter", spec]

    def run(self, args, groups=None):
        return run(self.command(args, groups))

    def __enter__(self):
        """Starts the container with the arguments of the manifest, and waits for its listeners."""
        self.init = subprocess.Popen(
            self.command(self.container["args"]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.log = []
        threading.Thread(target=lambda: self.log.extend(self.init.stderr), daemon=True).start()
        timer = threading.Timer(SECONDS, self.init.kill)
        timer.start()
        listeners = 1 + len(self.container.get("ports", []))
        self.lines = [self.init.stdout.readline().strip() for _ in range(listeners)]
        timer.cancel()
        if not all(line.startswith("listening ") for line in self.lines):
            self.init.wait()
            fail(f"the daemon does not start: {self.lines} {''.join(self.log)}")
        children = Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()
        self.pid = int(children[0])
        return self

    def __exit__(self, kind, *_):
        if kind:
            print("".join(self.log), file=sys.stderr)
        self.init.kill()
        self.init.wait()

    def in_container(self, args, *flags):
        """Runs a program in the container, as `kubectl exec` and probes do."""
        spec = self.spec([], self.groups())
        env = [f"{name}={value}" for name, value in spec["env"].items()]
        # With --setgid, nsenter drops the supplementary groups, so it starts with the groups.
        user = f"--setuid={spec['uid']}"
        inside = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--root", "--wd=/", user]
        return run([*inside, *flags, *args], env, group=spec["gid"], extra_groups=spec["groups"])

    def probe(self):
        """Runs the probes of the manifest. Returns the output."""
        for name in ("startupProbe", "livenessProbe"):
            probe = self.in_container(self.container[name]["exec"]["command"])
            if probe.returncode != 0:
                fail(f"{name}: {probe.stdout}{probe.stderr}")
        return probe.stdout

    def has_no_privileges(self):
        status = Path(f"/proc/{self.pid}/status").read_text()
        status = dict(line.split(":\t", 1) for line in status.splitlines())
        capabilities = {status[name].strip("0") for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}
        user = str(self.container["securityContext"]["runAsUser"])
        return capabilities == {""} and status["NoNewPrivs"] == "1" and set(status["Uid"].split()) == {user}

    def stop(self):
        os.kill(self.pid, signal.SIGTERM)
        if self.init.wait(SECONDS) != 0:
            fail(f"the daemon ends with {self.init.returncode}: {''.join(self.log)}")


def run(command, env=(), **user):
    env = dict(variable.split("=", 1) for variable in env) if env else None
    path = shutil.which(command[0])
    flags = {"env": env, "capture_output": True, "text": True, "timeout": SECONDS, "stdin": subprocess.DEVNULL}
    return subprocess.run([path, *command[1:]], **flags, **user)


def expect(done, code, *texts):
    if done.returncode != code or not all(text in done.stdout + done.stderr for text in texts):
        fail(f"expected exit code {code} and {texts}: {done}")
    return done


def empty_dir(directory, name, mode=0o777):
    path = directory / name
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def test_sidecar(image, directory):
    """An agent lists, reads and follows the skills that it writes."""
    (pod,) = yaml.safe_load_all((MANIFESTS / "sidecar.yaml").read_text())
    pod = pod["spec"]
    volumes = {volume["name"]: empty_dir(directory, volume["name"]) for volume in pod["volumes"]}
    shutil.copytree(DEMO, volumes["skills"], dirs_exist_ok=True)
    agent = Container(image, pod, pod["containers"][0], volumes)
    with Container(image, pod, pod["initContainers"][0], volumes) as daemon:
        status = daemon.probe()
        print(*(line for line in status.splitlines() if line.startswith(("sandbox", "resolver"))), sep="\n")
        if f"environments  {FIELDS['metadata.name']}\n" not in status:
            fail(f"the daemon has another environment id: {status}")
        if "landlock enforced" not in status or "no_new_privs" not in status:
            fail(f"the sandbox is incomplete: {status}")
        if not daemon.has_no_privileges():
            fail("the daemon has privileges")
        expect(agent.run(["list"]), 0, "triage-logs", "3 skills in 1 root")
        expect(agent.run(["list"], groups=[]), 5, "may not use the socket")
        text = (DEMO / SKILL).read_text()
        if expect(agent.run(["read", "triage-logs"]), 0).stdout != text:
            fail("another text was read")
        watch = subprocess.Popen(agent.command(["watch"]), stdout=subprocess.PIPE, text=True)
        timer = threading.Timer(SECONDS, watch.kill)
        timer.start()
        for line in watch.stdout:
            if " = synced" in line:
                skill = volumes["skills"] / SKILL
                skill.write_text(text.replace("description: ", "description: Edited. ", 1))
            if "~ triage-logs" in line and "Edited." in line:
                print(line.strip())
                break
        else:
            fail("the stream does not report the edit")
        timer.cancel()
        watch.kill()
        watch.wait()
        daemon.stop()
    if list(volumes["socket"].glob("*/*.sock")):
        fail("the socket remains")


def test_daemonset(image, directory):
    """An orchestrator calls over mutual TLS, and a process of the node over the socket."""
    config_map, daemon_set = yaml.safe_load_all((MANIFESTS / "daemonset.yaml").read_text())
    pod = daemon_set["spec"]["template"]["spec"]
    volumes = {
        "config": empty_dir(directory, "config", 0o755),
        "tls": empty_dir(directory, "tls", 0o755),
        "skills": directory / "skills",
        "socket": empty_dir(directory, "socket", 0o755),
    }
    shutil.copytree(DEMO, volumes["skills"])
    for name, text in config_map["data"].items():
        (volumes["config"] / name).write_text(text)
    make_certificates(volumes["tls"], pod)
    socket_directory = pod["initContainers"][0]
    (mount,) = socket_directory["volumeMounts"]
    *command, argument = socket_directory["command"]
    if argument != mount["mountPath"]:
        fail("the init container changes another directory")
    expect(run([*command, str(volumes[mount["name"]])]), 0)
    container = pod["containers"][0]
    port = container["ports"][0]["containerPort"]
    with Container(image, pod, container, volumes) as daemon:
        if not any(line.startswith("listening tcp:") and line.endswith(f":{port}") for line in daemon.lines):
            fail(f"the daemon does not listen at the container's port: {daemon.lines}")
        if f"environments  {FIELDS['spec.nodeName']}\n" not in daemon.probe():
            fail("the daemon has another environment id")
        checked = daemon.in_container([*image[0]["Entrypoint"], "config", "check", container["args"][-1]])
        print(expect(checked, 0, "ok: ").stdout.strip())
        if "warning" in checked.stdout + checked.stderr:
            fail(f"the config has warnings: {checked}")
        listing = [str(image[1] / "usr/bin/caproot"), "list"]
        client = volumes["tls"].parent / "client"
        files = [f"--ca={client}/ca.pem", f"--cert={client}/client.pem", f"--key={client}/client.key"]
        remote = ["nsenter", f"--target={daemon.pid}", "--net", *listing, f"--endpoint=tls:localhost:{port}"]
        expect(run([*remote, *files]), 0, "3 skills in 1 root")
        expect(run([*remote, files[0]]), 5, "requires a client certificate")
        node = [*listing, f"--endpoint=unix:{volumes['socket']}/caproot.sock"]
        as_user = ["setpriv", "--reuid=1000", "--regid=1000"]
        expect(run([*as_user, "--groups=65532", *node]), 0, "3 skills in 1 root")
        expect(run([*as_user, "--clear-groups", *node]), 5, "may not use the socket")
        daemon.stop()


def make_certificates(secret, pod):
    """Writes the secret as the kubelet does, and the files of an orchestrator next to it."""
    (volume,) = (volume for volume in pod["volumes"] if "secret" in volume)
    client = secret.parent / "client"
    client.mkdir()
    key = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    expect(run([*key, "-subj", "/CN=CA", "-keyout", f"{client}/ca.key", "-out", f"{client}/ca.pem"]), 0)
    for subject, name, private, certificate in (
        ("server", "DNS:localhost", secret / "tls.key", secret / "tls.crt"),
        ("client", "URI:spiffe://example.org/orchestrator", client / "client.key", client / "client.pem"),
    ):
        signed = [*key, "-CA", f"{client}/ca.pem", "-CAkey", f"{client}/ca.key", "-subj", f"/CN={subject}"]
        names = ["-addext", f"subjectAltName={name}", "-addext", "basicConstraints=critical,CA:FALSE"]
        expect(run([*signed, *names, "-keyout", str(private), "-out", str(certificate)]), 0)
    shutil.copy(client / "ca.pem", secret / "ca.crt")
    for file in secret.iterdir():
        os.chown(file, 0, pod["securityContext"]["fsGroup"])
        file.chmod(volume["secret"]["defaultMode"])


def main():
    if run(["unshare", "--mount", "--pid", "--net", "--fork", "true"]).returncode != 0 or os.getuid() != 0:
        print("pods: no namespaces as root here", file=sys.stderr)
        sys.exit(77)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.chmod(0o755)
        (directory / "root").mkdir()
        image = unpack(sys.argv[1], directory)
        for test in (test_sidecar, test_daemonset):
            print(f"== {test.__doc__}")
            test(image, directory / test.__name__)
    print("pods: all containers work as their manifests say")


if __name__ == "__main__":
    if sys.argv[1] == "--enter":
        enter(json.loads(sys.argv[2]))
    main()
