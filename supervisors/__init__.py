"""Actors and supervision in the manner of Erlang/OTP, on pykka.

Start with `ActorSystem`, `Actor` and `Supervisor`; `supervisors.testing` has a simulation
on a virtual clock, with an order drawn from a seed.
"""

from supervisors.actor import Actor, MonitorRef, Reply
from supervisors.budget import Budget, ChildBudget, RestartWindow, SupervisorBudget
from supervisors.clock import Clock, RealClock
from supervisors.dynamic import DynamicSupervisor
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
from supervisors.requests import (
    ChildCounts,
    ChildInfo,
    ChildReply,
    CountChildren,
    DeleteChild,
    GetChildSpec,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
    count_children,
    delete_child,
    get_child_spec,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from supervisors.scheduler import Scheduler, Statistics
from supervisors.signals import Down, Exit, TaskDone, TaskEnded, TaskFailed
from supervisors.spec import BRUTAL_KILL, INFINITY, Backoff, ChildSpec
from supervisors.supervisor import Supervisor
from supervisors.system import ActorSystem, Limits
from supervisors.task import TaskActor
from supervisors.timers import TimerRef

__all__ = [
    "BRUTAL_KILL",
    "INFINITY",
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
    "Backoff",
    "Budget",
    "CallTimeout",
    "CallingSelf",
    "Cell",
    "ChildBudget",
    "ChildCounts",
    "ChildInfo",
    "ChildReply",
    "ChildSpec",
    "Clock",
    "CountChildren",
    "Crashed",
    "DeleteChild",
    "Down",
    "DynamicSupervisor",
    "Event",
    "Exit",
    "ExitReason",
    "Future",
    "GetChildSpec",
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
    "RestartChild",
    "RestartWindow",
    "Restarting",
    "RestartsExceeded",
    "Running",
    "Scheduler",
    "Shutdown",
    "StartChild",
    "StartError",
    "Statistics",
    "StuckError",
    "Supervisor",
    "SupervisorBudget",
    "SupervisorsError",
    "SystemStopped",
    "TaskActor",
    "TaskDone",
    "TaskEnded",
    "TaskFailed",
    "TerminateChild",
    "TimerRef",
    "WhichChildren",
    "WorkersExhausted",
    "count_children",
    "delete_child",
    "get_child_spec",
    "is_quiet",
    "restart_child",
    "shield",
    "start_child",
    "terminate_child",
    "which_children",
]
