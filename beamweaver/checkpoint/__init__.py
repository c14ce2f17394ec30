"""Where threads are kept: stores, the codec of values, and the protocol that a store follows."""

from __future__ import annotations

from beamweaver.checkpoint.base import Checkpointer
from beamweaver.checkpoint.codec import ChannelCodec, Codec
from beamweaver.checkpoint.lmdb import LMDBCheckpointer
from beamweaver.checkpoint.memory import MemoryCheckpointer

__all__ = ["ChannelCodec", "Checkpointer", "Codec", "LMDBCheckpointer", "MemoryCheckpointer"]
