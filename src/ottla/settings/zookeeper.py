"""The parts of `zookeeper.connect`."""


def split_connect(connect: str) -> tuple[str, str]:
    """Hosts with commas between, and the chroot: empty, or a path without a '/' at its end."""
    hosts, _, path = connect.partition("/")
    steps = "/".join(step for step in path.split("/") if step)
    return hosts, f"/{steps}" if steps else ""


def on_this_host(connect: str) -> bool:
    """Whether all servers are reached by a name of the loopback interface."""
    hosts, _ = split_connect(connect)
    return all(is_loopback(each) for each in hosts.split(","))


def is_loopback(server: str) -> bool:
    """Of HOST, HOST:PORT or [HOST]:PORT."""
    host = server.partition("]")[0].lstrip("[") if "[" in server else server.partition(":")[0]
    return host in ("localhost", "localhost.localdomain", "::1") or host.startswith("127.")
