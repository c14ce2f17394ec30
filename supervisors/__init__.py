"""Actors and supervision in the manner of Erlang/OTP, on pykka.

Start with `ActorSystem`, `Actor` and `Supervisor`; `supervisors.testing` has a simulation
on a virtual clock, with an order drawn from a seed.
"""

from supervisors.actor import Actor, MonitorRef, Reply
from supervisors.clock import Clock, RealClock
from supervisors.errors import (
    ActorExit,
    AlreadyPresent,
    AlreadySet,
    AlreadyStarted,
    CallingSelf,
    CallTimeout,
    InvalidSpec,
    MaxChildren,
    NoProc,
    NotFound,
    Restarting,
    RestartsExceeded,
    Running,
    StartError,
    StuckError,
    SupervisorsError,
    SystemStopped,
    WorkersExhausted,
)
from supervisors.events import Event
from supervisors.exits import (
    KILLED,
    NO_PROC,
    NORMAL,
    SHUTDOWN,
    Abnormal,
    Crashed,
    ExitReason,
    Shutdown,
    is_quiet,
)
from supervisors.future import Future
from supervisors.kill import Killed, shield
from supervisors.mailbox import Cell, Ignore, Refuse
from supervisors.pool import PoolScheduler
from supervisors.ref import ActorRef
from supervisors.scheduler import Scheduler, Statistics
from supervisors.signals import Down, Exit, TaskDone, TaskEnded, TaskFailed
from supervisors.system import ActorSystem, Limits
from supervisors.task import TaskActor
from supervisors.timers import TimerRef

__all__ = [
    "KILLED",
    "NORMAL",
    "NO_PROC",
    "SHUTDOWN",
    "Abnormal",
    "Actor",
    "ActorExit",
    "ActorRef",
    "ActorSystem",
    "AlreadyPresent",
    "AlreadySet",
    "AlreadyStarted",
    "CallTimeout",
    "CallingSelf",
    "Cell",
    "Clock",
    "Crashed",
    "Down",
    "Event",
    "Exit",
    "ExitReason",
    "Future",
    "Ignore",
    "InvalidSpec",
    "Killed",
    "Limits",
    "MaxChildren",
    "MonitorRef",
    "NoProc",
    "NotFound",
    "PoolScheduler",
    "RealClock",
    "Refuse",
    "Reply",
    "Restarting",
    "RestartsExceeded",
    "Running",
    "Scheduler",
    "Shutdown",
    "StartError",
    "Statistics",
    "StuckError",
    "SupervisorsError",
    "SystemStopped",
    "TaskActor",
    "TaskDone",
    "TaskEnded",
    "TaskFailed",
    "TimerRef",
    "WorkersExhausted",
    "is_quiet",
    "shield",
]
