# SPDX-License-Identifier: Apache-2.0
"""What the entry points share: failures and interruptions end in a message, not a traceback."""

import signal
import sys
from collections.abc import Callable

from .command import StepError
from .ui import errors


def guarded(main: Callable[[], int]) -> None:
    """Runs an entry point and exits with its status."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = main()
    except StepError as error:
        errors.print("[red]Failed.[/red]")
        errors.print(str(error), markup=False, soft_wrap=True)
        code = 1
    except KeyboardInterrupt:
        errors.print("Interrupted. Finished steps are kept; start again to go on.")
        code = 130
    sys.exit(code)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
