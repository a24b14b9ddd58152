"""At build time: compile the record loops if a C compiler is there; if not, say so and go on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileRecordCodec(BuildHookInterface):  # type: ignore[misc]
    """Puts the compiled codec beside its source, and into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get("OTTLA_PURE") == "1":
            return
        sys.path.insert(0, str(Path(self.root) / "scripts"))
        try:
            import compile as compile_script

            compile_script.build()
        except Exception as problem:
            self.app.display_warning(f"the record loops stay plain Python: {problem}")
            return
        if version != "editable":
            build_data["artifacts"].append("src/ottla/**/*.so")
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
