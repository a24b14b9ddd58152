"""Which listeners other machines reach, and what protects them."""

from ottla.settings.listeners import Listener
from ottla.settings.settings import Settings
from ottla.settings.zookeeper import is_loopback


def beyond_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from other machines; empty: all interfaces."""
    shown = f"[{host}]" if ":" in host else host
    return not is_loopback(shown)


def unprotected(settings: Settings) -> list[Listener]:
    """Listeners that let everybody in, unencrypted, from other machines."""
    return [
        each
        for each in settings.listeners
        if each.protocol == "PLAINTEXT" and beyond_loopback(each.host)
    ]


def weaknesses(settings: Settings) -> list[str]:
    """What an operator should know of listeners that other machines reach, a sentence each."""
    told = []
    for each in settings.listeners:
        if not beyond_loopback(each.host):
            continue
        if each.protocol == "SASL_PLAINTEXT":
            told.append(
                f"listener {each.name} is reached from other machines and is not encrypted: "
                "who listens on the line reads records, and passwords of PLAIN"
            )
        if each.protocol == "SSL" and not settings.values["authorizer.class.name"]:
            asks = settings.of_listener(each.name, "ssl.client.auth")
            if asks != "required":
                told.append(
                    f"listener {each.name} is reached from other machines and asks nobody who it "
                    "is: ssl.client.auth=required would"
                )
    return told
