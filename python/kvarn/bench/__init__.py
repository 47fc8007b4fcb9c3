# SPDX-License-Identifier: Apache-2.0
"""Measures a host with its own KV caches and with kvarn's, in one interleaved run."""
