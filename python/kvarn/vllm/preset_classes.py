# SPDX-License-Identifier: Apache-2.0
"""One class for each preset: vLLM tells a backend class nothing about the cache dtype."""

from ..presets import PRESETS


def by_preset(base: type, suffix: str, module: dict) -> dict[str, type]:
    """Subclasses of `base` by the preset's name, with `preset` set.

    module: globals of the module of `base`; the classes go there, since vLLM finds them by path.
    """
    classes = {}
    for preset in PRESETS:
        name = "".join(part.capitalize() for part in preset.name.split("_")) + suffix
        made = type(name, (base,), {"preset": preset, "__module__": module["__name__"]})
        module[name] = classes[preset.name] = made
    return classes
