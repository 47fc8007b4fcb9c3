# SPDX-License-Identifier: Apache-2.0


class BenchError(RuntimeError):
    """What was wrong, what is allowed and what to do, for a person to read."""
