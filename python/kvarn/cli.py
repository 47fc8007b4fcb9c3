# SPDX-License-Identifier: Apache-2.0
"""The command `kvarn`."""

import argparse
import sys

from .bench import llama, model
from .bench.error import BenchError


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kvarn", description="A KV cache in 2 to 8 bits.")
    commands = parser.add_subparsers(required=True, metavar="command")
    bench = commands.add_parser("bench", help="measure a host with its own caches and with kvarn's")
    hosts = bench.add_subparsers(required=True, metavar="host")
    llama.add_parser(hosts)
    model.add_parser(hosts)
    options = parser.parse_args(argv)
    try:
        return options.run(options)
    except BenchError as error:
        print(f"kvarn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("kvarn: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
