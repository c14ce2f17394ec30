from beamweaver.runtime.recovery import Recovery
from beamweaver.runtime.registry import Registry
from beamweaver.runtime.thread import ThreadActor
from beamweaver.runtime.timers import Timers
from beamweaver.runtime.writer import CheckpointWriter
from supervisors import Actor


class Starter(Actor):
    def __init__(self, hub):
        self.hub = hub

    def on_start(self):
        self.hub.new_threads(self.cell)

    def on_receive(self, m):
        self.system.spawn(ThreadActor, self.hub, m.thread_id, recover=m.recover)


def start_tree(hub, on_end):
    for c in (Registry, Timers, CheckpointWriter, Starter, Recovery):
        ref = hub.system.start(c, hub)
    return ref
