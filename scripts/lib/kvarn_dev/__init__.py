# SPDX-License-Identifier: Apache-2.0
"""Set-up, measurement and test running for kvarn. Not part of what is installed."""
