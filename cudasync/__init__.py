"""Write GPU work as if it were serial: dependencies found, streams filled, the serial answer."""

from __future__ import annotations
