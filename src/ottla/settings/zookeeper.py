"""The parts of `zookeeper.connect`."""


def split_connect(connect: str) -> tuple[str, str]:
    """Hosts with commas between, and the chroot: empty, or a path without a '/' at its end."""
    hosts, _, path = connect.partition("/")
    steps = "/".join(step for step in path.split("/") if step)
    return hosts, f"/{steps}" if steps else ""
