"""Uses stdio MCP servers of a plugin over ssh: `ssh box caproot exec --server HANDLE`, by FastMCP's client, by the
Python SDK's, and as tools of a session. The box is a machine of its own: a network, processes and a file tree that the
orchestrator cannot see, with a daemon and an SSH server.

    ssh_servers.py CAPROOT NODE

Run this with a Python that has fastmcp and asyncssh. Exits with 77 if the machine has no user namespaces.
"""

import asyncio
import contextlib
import json
import logging
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

import asyncssh
from stdio_servers import SERVERS, call, write_plugin

OWN_ADDRESS, BOX_ADDRESS, PORT = "10.61.7.1", "10.61.7.2", 2222
# Seconds in which a server must have ended.
END = 30
# Seconds after which a client gives a server up.
PATIENCE = 3
# A name that is a second command, if a shell on the way reads it.
HOSTILE_NAME = "x'; touch $HOME/taken; $(touch $HOME/taken) #"
HOSTILE_HANDLE = "skill://r/kit#x%27%3B%20touch%20%24HOME%2Ftaken%3B%20%24%28touch%20%24HOME%2Ftaken%29%20%23"
# Servers that do not behave, as shell scripts of the plugin.
SCRIPTS = {
    "seven": "cat >/dev/null; exit 7",
    "killed": "kill -TERM $$",
    "silent": "cat >/dev/null",
    "flood": "while :; do echo 'no message, and another line follows'; done",
    "endless": "while :; do printf '%01000d' 0; done",
    "waits": "echo started; cat >/dev/null; echo ended >&2",
    HOSTILE_NAME: "cat",
}


# --- The box ---------------------------------------------------------------------------------------------


def run_ip(*words):
    subprocess.run(["ip", *words], check=True)


def write_servers(kit):
    scripts = {name: {"command": "sh", "args": [f"./servers/{at}.sh"]} for at, name in enumerate(SCRIPTS)}
    write_plugin(kit, SERVERS | scripts)
    for at, text in enumerate(SCRIPTS.values()):
        (kit / f"servers/{at}.sh").write_text(text + "\n")


def processes(*own):
    """Returns the command lines of the processes of the box, except those with these ids, by process id."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = (entry / "cmdline").read_bytes()
            # A process that has ended and was not waited for has no command line.
            if int(entry.name) not in own and words:
                found[int(entry.name)] = words.replace(b"\0", b" ").decode().strip()
    return found


async def pass_on(source, target, close):
    """Passes bytes on until one of both sides has ended."""
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    close()


async def serve_command(process, environment):
    """Runs a command as sshd(8) does: in a shell, in a session of its own. If the client goes away, the command gets no
    signal, but the ends of its input and of its output."""
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", process.command, env=environment | dict(process.env), start_new_session=True,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    reader = asyncio.create_task(pass_on(process.stdin, child.stdin, child.stdin.close))
    # asyncio closes its end of an output only at the end of the command.
    outputs = [child._transport.get_pipe_transport(number) for number in (1, 2)]
    await asyncio.gather(
        pass_on(child.stdout, process.stdout, outputs[0].close),
        pass_on(child.stderr, process.stderr, outputs[1].close),
    )
    code = await child.wait()
    reader.cancel()
    with contextlib.suppress(OSError, asyncssh.Error):
        if code < 0:
            process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            process.exit(code)


async def serve_box(caproot, node, top):
    """Answers lines of JSON on stdin until its end: the list of processes, or the end of all of them."""
    print(json.dumps("has a network of its own"), flush=True)
    assert json.loads(sys.stdin.readline()) == "cable"
    run_ip("addr", "add", f"{BOX_ADDRESS}/24", "dev", "eth0")
    run_ip("link", "set", "eth0", "up")
    keys = {"server_host_keys": [top / "host_key"], "authorized_client_keys": str(top / "client_key.pub")}
    own = top / "box"
    subprocess.run(["mount", "-t", "tmpfs", "box", own], check=True)
    for name in ("run", "home"):
        (own / name).mkdir(mode=0o700)
    write_servers(own / "r/kit")
    socket = f"unix:{own}/run/caproot.sock"
    daemon = subprocess.Popen(
        [caproot, "serve", "--root", f"r={own}/r", "--listen", socket], stdout=subprocess.PIPE, text=True
    )
    assert "listening" in daemon.stdout.readline()
    path = [os.path.dirname(name) for name in (os.path.abspath(caproot), sys.executable, node)]
    environment = {
        "PATH": ":".join([*path, os.environ["PATH"]]),
        "HOME": str(own / "home"),
        "CAPROOT_ENDPOINT": socket,
    }
    server = await asyncssh.listen(
        BOX_ADDRESS, PORT, encoding=None, server_factory=BoxServer,
        process_factory=lambda one: serve_command(one, environment), **keys,
    )  # fmt: skip
    print(json.dumps("ready"), flush=True)

    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while request := await lines.readline():
        until = time.monotonic() + END
        while running := processes(os.getpid(), daemon.pid):
            if json.loads(request) != "end" or time.monotonic() > until:
                break
            await asyncio.to_thread(wait_for_end, next(iter(running)))
        print(json.dumps({"running": sorted(running.values()), "home": os.listdir(own / "home")}), flush=True)
    server.close()
    daemon.terminate()
    assert daemon.wait() == 0


class BoxServer(asyncssh.SSHServer):
    """SSH server that lets its client connect to sockets of the box."""

    def unix_connection_requested(self, _path):
        return True


def wait_for_end(pid):
    """Waits until a process ends, at most END seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(END * 1000)
    os.close(descriptor)


class Box:
    """Process that is the box. The orchestrator knows only its address and its keys."""

    def __init__(self, caproot, node, top):
        command = ["unshare", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child=KILL"]
        self.process = subprocess.Popen(
            [*command, sys.executable, __file__, "--box", caproot, node, str(top)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert json.loads(self.process.stdout.readline()) == "has a network of its own"

    def ask(self, request):
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def check_idle(self):
        """Checks that all that ran for a client has ended."""
        assert self.ask("end")["running"] == []

    def stop(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


# --- The orchestrator ------------------------------------------------------------------------------------


def write_ssh_config(top):
    for name in ("host_key", "client_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", top / name], check=True)
    (top / "known_hosts").write_text(f"box {(top / 'host_key.pub').read_text()}")
    (top / "ssh_config").write_text(f"""Host box
    HostName {BOX_ADDRESS}
    Port {PORT}
    HostKeyAlias box
    IdentityFile {top}/client_key
    IdentitiesOnly yes
    UserKnownHostsFile {top}/known_hosts
    BatchMode yes
""")
    return ["ssh", "-T", "-F", str(top / "ssh_config")]


async def call_by_sdk(command, tool, text):
    """Starts a server by a command, and calls its only tool with the Python SDK's client, as `call` does."""
    from mcp import StdioServerParameters
    from mcp.client import Client

    async with Client(StdioServerParameters(command=command[0], args=command[1:])) as client:
        tools = (await client.list_tools()).tools
        assert [found.name for found in tools] == [tool], tools
        result = await client.call_tool(tool, {"text": text})
        return result.content[0].text


@contextlib.contextmanager
def forwarded_daemon(ssh, top):
    """Returns the address of the daemon of the box, at the end of an ssh connection."""
    socket = top / "daemon.sock"
    command = [*ssh, "-L", f"{socket}:{top}/box/run/caproot.sock", "-o", "ExitOnForwardFailure=yes"]
    # The remote command ends with its input. Its line says that the connection stands.
    tunnel = subprocess.Popen(
        [*command, "box", "echo ready; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert tunnel.stdout.readline() == "ready\n"
    try:
        yield f"unix:{socket}"
    finally:
        tunnel.stdin.close()
        assert tunnel.wait() == 0


def register_tool(tools, client, namespace, found):
    """Makes a tool of an MCP server a tool of a session."""

    async def call_server(**arguments):
        result = await client.call_tool(found.name, arguments)
        return result.content[0].text

    tools.register(
        call_server, name=found.name, namespace=namespace, description=found.description,
        input_schema=found.input_schema, external=True,
    )  # fmt: skip


async def use_in_session(ssh, address):
    """Starts the servers by the command lines of a session, and calls their tools as a model does."""
    import caproot
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    async with caproot.connect(address, plugins=True) as skills:
        [plugin] = skills.plugins()
    commands = plugin["serverCommands"]
    tools = caproot.Tools()
    async with contextlib.AsyncExitStack() as clients:
        for server in SERVERS:
            transport = StdioTransport(ssh[0], [*ssh[1:], "box", *commands[server]], keep_alive=False)
            client = await clients.enter_async_context(Client(transport))
            for found in await client.list_tools():
                register_tool(tools, client, server, found)

        async with caproot.connect(address, tools=tools) as skills:
            assert {"echo_echo", "notes_remember"} <= {tool["name"] for tool in skills.tools}, skills.tools
            result = await skills.call("echo_echo", {"text": "hello"})
            assert (result.ok, result.external) == (True, True)
            assert result.json() == {"result": "said hello read undefined"}, result.text
            result = await skills.call("notes_remember", {"text": "session"})
            assert result.json()["result"].endswith("session\n"), result.text
            refused = await skills.call("echo_echo", {"text": 1})
            assert not refused.ok, refused.text


async def give_up(command):
    """Connects to a server that never answers. Returns the errors of both clients."""
    from fastmcp import Client as FastClient
    from fastmcp.client.transports import StdioTransport
    from mcp import StdioServerParameters
    from mcp.client import Client

    transport = StdioTransport(command[0], command[1:], keep_alive=False)
    errors = []
    for client in (
        FastClient(transport, init_timeout=PATIENCE),
        Client(StdioServerParameters(command=command[0], args=command[1:]), read_timeout_seconds=PATIENCE),
    ):
        try:
            async with asyncio.timeout(END), client:
                raise AssertionError(f"a client is connected to {command[-1]}")
        except Exception as error:
            assert not isinstance(error, AssertionError), error
            sentence = repr(error)
            assert "timed out" in sentence or "Failed to initialize" in sentence, sentence
            errors.append(sentence)
    return errors


def ended(command, **options):
    """Runs a command without input. Returns its exit code and its errors."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=END, check=False, **options
    )
    return done.returncode, done.stderr


async def check(caproot, node, top):
    ssh = write_ssh_config(top)
    (top / "box").mkdir()
    box = Box(caproot, node, top)
    run_ip("link", "add", "own0", "type", "veth", "peer", "name", "eth0", "netns", str(box.process.pid))
    run_ip("addr", "add", f"{OWN_ADDRESS}/24", "dev", "own0")
    run_ip("link", "set", "own0", "up")
    assert box.ask("cable") == "ready"
    assert os.listdir(top / "box") == [], "the files of the box are visible"

    def line(server, *options):
        return [*ssh, *options, "box", "caproot", "exec", "--server", f"skill://r/kit#{server}"]

    for name, client in (("FastMCP", lambda *words: call(words[0], None, *words[1:])), ("SDK", call_by_sdk)):
        assert await client(line("echo"), "echo", "hello") == "said hello read undefined"
        said = await client(line("notes"), "remember", name)
        assert said.endswith(f"{name}\n"), said
        box.check_idle()
        print(f"{name}: two servers over ssh, with a tool each")
    with forwarded_daemon(ssh, top) as address:
        await use_in_session(ssh, address)
    box.check_idle()
    print("a session: the tools of both servers")
    many = [call(line("notes"), None, "remember", "one of four") for _ in range(4)]
    await asyncio.gather(*many)
    box.check_idle()
    print("four clients at once: ok")

    # A variable of the orchestrator reaches the server only if the declaration names it.
    said = await call(line("echo", "-o", "SetEnv=MODE=write HIDDEN=x"), None, "echo", "hello")
    assert said == "said hello write undefined", said

    assert ended(line("seven")) == (7, "")
    # The shell of the box waits for the server, or has become the server.
    assert ended(line("killed"))[0] in (128 + signal.SIGTERM, 255)
    code, errors = ended(line("none"))
    assert code == 127 and "caproot: skill://r/kit#none is no MCP server of a listed plugin" in errors, errors
    code, errors = ended([*line("echo"), "--endpoint", "unix:/nowhere"])
    assert code == 125 and "caproot:" in errors, errors
    # A shell of the box reads the handle without quotes.
    assert ended([*line("")[:-1], HOSTILE_HANDLE]) == (0, "")
    assert "taken" not in box.ask("processes")["home"]
    box.check_idle()
    print("exit codes and errors: ok")

    for number in (signal.SIGTERM, signal.SIGKILL):
        client = subprocess.Popen(line("waits"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert client.stdout.readline() == "started\n"
        assert box.ask("processes")["running"]
        client.send_signal(number)
        client.wait()
        box.check_idle()
    print("a client that is killed: its server has ended")

    for server in ("silent", "flood", "endless"):
        for error in await give_up(line(server)):
            print(f"{server}: {error}")
        box.check_idle()
    box.stop()


def main():
    if sys.argv[1] == "--box":
        caproot, node, top = sys.argv[2:]
        asyncio.run(serve_box(caproot, node, pathlib.Path(top)))
        return
    if sys.argv[1] == "--inside":
        # The clients log each line of a flood.
        logging.disable()
        # The package takes its program from the PATH.
        sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
        os.environ["PATH"] = f"{pathlib.Path(sys.argv[2]).resolve().parent}:{os.environ['PATH']}"
        with tempfile.TemporaryDirectory() as top:
            asyncio.run(check(*sys.argv[2:], pathlib.Path(top)))
        print("servers of a plugin over ssh: ok")
        return
    namespaces = ["unshare", "--user", "--map-root-user", "--net"]
    if subprocess.run([*namespaces, "true"], check=False).returncode != 0:
        print("ssh servers: the machine has no user namespaces", file=sys.stderr)
        sys.exit(77)
    os.execvp(namespaces[0], [*namespaces, sys.executable, __file__, "--inside", *sys.argv[1:]])


if __name__ == "__main__":
    main()
