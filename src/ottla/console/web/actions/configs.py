"""Change one config of a topic, a broker or all brokers, or put it back."""

from __future__ import annotations

from typing import Any

from ottla.client.admin import AlterConfigOp, ConfigResource

from ...access.permissions import Permission
from ..acting import Action, Asking, Outcome, Preview
from ..asked import asked_of
from ..configs import ALL_BROKERS, ConfigLine, read_configs
from ..formats import segment
from ..forms import FormError

KINDS = ("topic", "broker")
VALUE_CHARACTERS_MAX = 32_767  # of a string of Kafka's protocol in most messages
FAIR = "OK"  # what the admin says of a resource that was changed


class ChangeConfig(Action):
    name = "change-config"
    template = "change_config.html"

    def kind(self, asking: Asking) -> str:
        kind = asking.fields.one("kind")
        if kind not in KINDS:
            raise FormError(f"kind: one of {', '.join(KINDS)} (got {kind!r})")
        return kind

    def authorize(self, asking: Asking) -> None:
        topic = asking.fields.one("name") if asking.fields.one("kind") == "topic" else None
        asking.require(Permission.CHANGE, topic)

    def target(self, asking: Asking) -> str:
        kind, name = asking.fields.one("kind"), asking.fields.one("name")
        return f"{kind} {name or '(all)'}: {asking.fields.one('config')}"

    def back(self, asking: Asking) -> str:
        kind, name = asking.fields.one("kind"), asking.fields.one("name")
        if kind == "topic":
            return f"{asking.base}/topics/{segment(name)}?tab=configs"
        if name == ALL_BROKERS:
            return f"{asking.base}/brokers?tab=configs"
        return f"{asking.base}/brokers/{segment(name)}?tab=configs"

    def form_context(self, asking: Asking) -> dict[str, Any]:
        kind, name = asking.fields.one("kind"), asking.fields.one("name")
        what = f"topic {name}" if kind == "topic" else f"broker {name}" if name else "all brokers"
        return {"what": what}

    async def look(self, asking: Asking) -> dict[str, Any]:
        kind, name, config = self.kind(asking), asking.fields.one("name"), self.config(asking)
        answer = await asked_of(asking.request).get(
            asking.cluster, ("configs", kind, name), lambda admin: read_configs(admin, kind, name)
        )
        lines = [line for line in answer.value or () if line.name == config]
        return {**self.form_context(asking), "line": lines[0] if lines else None}

    def line(self, asking: Asking) -> ConfigLine | None:
        """The config as it is now. What nobody has set for all brokers is only known to each."""
        kind, name, config = self.kind(asking), asking.fields.one("name"), self.config(asking)
        places = [name]
        if kind == "broker" and name == ALL_BROKERS:
            places += [str(each.node_id) for each in asking.picture.brokers if each.up][:1]
        for place in places:
            for line in read_configs(asking.admin, kind, place):
                if line.name == config:
                    return line if place == name else line._replace(value=None, origins=())
        return None

    def config(self, asking: Asking) -> str:
        return asking.fields.one("config")

    def resource(self, asking: Asking) -> ConfigResource:
        fields = asking.fields
        config, value = self.config(asking), fields.one("value")
        if not config:
            raise FormError("config: its name")
        if len(value) > VALUE_CHARACTERS_MAX:
            raise FormError(f"value: at most {VALUE_CHARACTERS_MAX} characters (got {len(value)})")
        change: tuple[AlterConfigOp, str | None] = (AlterConfigOp.SET, value)
        if fields.one("reset") == "1":
            change = (AlterConfigOp.DELETE, None)
        return ConfigResource(self.kind(asking), fields.one("name"), {config: change})

    def send(self, asking: Asking, validate_only: bool) -> None:
        resource = self.resource(asking)
        told = asking.admin.alter_configs(
            [resource], validate_only=validate_only, raise_on_unknown=False
        )
        for results in told.values():
            for result in results.values():
                if result != FAIR:
                    raise FormError(result)

    def plan(self, asking: Asking) -> Preview:
        fields = asking.fields
        kind, name, config = self.kind(asking), fields.one("name"), self.config(asking)
        line = self.line(asking)
        if line is None:
            raise FormError(f"config: {kind} {name!r} has no {config!r}")
        self.send(asking, validate_only=True)
        reset = fields.one("reset") == "1"
        sensitive = line.sensitive
        now = "not shown" if sensitive else line.value
        then: object = fields.one("value")
        if reset:
            after = line.origins[1:] if line.own else line.origins
            then = after[0].value if after else "what the brokers' files or defaults say"
        elif sensitive:
            then = "not shown"
        what = self.form_context(asking)["what"]
        sent: dict[str, object] = {"kind": kind, "name": name, "config": config}
        sent |= {"reset": "1"} if reset else {} if sensitive else {"value": fields.one("value")}
        return Preview(
            f"Change {config}",
            "Put back" if reset else "Change",
            [
                f"{config} of {what} is "
                + ("no longer set there." if reset else "set while the cluster runs.")
            ],
            ["This holds for all brokers that have no value of their own."]
            if kind == "broker" and name == ALL_BROKERS
            else [],
            ("Config", "Now", "Then"),
            [(config, now if now is not None else "empty", then)],
            sent,
            secret="value" if sensitive and not reset else "",
        )

    def do(self, asking: Asking) -> Outcome:
        line, config = self.line(asking), self.config(asking)
        self.send(asking, validate_only=False)
        if asking.fields.one("reset") == "1":
            return Outcome(f"{config} was put back.")
        shown = asking.fields.one("value") if line and not line.sensitive else "(not shown)"
        return Outcome(f"{config} was changed.", detail=f"{config} = {shown}")


ACTIONS: tuple[Action, ...] = (ChangeConfig(),)
