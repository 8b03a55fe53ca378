"""The kill switch: a file that stops the actuator while it exists."""

import os
from pathlib import Path

_LONGEST = 200


def stop_reason(path: str) -> str:
    """Reason to stop, empty to go on; an empty ``path`` means that there is no kill switch.

    The reason is the first line of the file. Anything that cannot be read counts as a stop, and so does a missing
    *folder*, because an unmounted volume looks like one.
    """
    if not path:
        return ""
    file = Path(path)
    try:
        os.lstat(file)
    except FileNotFoundError:
        return "" if file.parent.is_dir() else f"the folder of {path} does not exist; create it to go on"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror}); make it readable to go on"
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            reason = text.readline(_LONGEST).strip()
    except OSError:
        reason = ""
    return f"{path} exists{': ' + reason if reason else ''}; remove it to go on"
