"""Actors and supervision in the manner of Erlang/OTP, on pykka.

Start with `ActorSystem`, `Actor` and `Supervisor`.

- `actor`, `system`, `ref`, `mailbox`, `future`: actors, what runs them, and talking to them
- `exits`, `errors`, `signals`, `death`: why they end, and who is told
- `spec`, `supervisor`, `dynamic`, `budget`, `requests`, `partition`: supervision trees
- `task`, `tasks`, `kill`: bodies that run on the side, and how they are ended
- `cancel`: tokens by which code that waits or loops knows that it is to end
- `asynchronous`, `process`, `hosted`: actors on an event loop, in a process, and pykka's own; the
  first two are imported by name, `from supervisors.process import ProcessActor`
- `registry`, `timers`, `control`, `events`, `tree`, `debug`: names, time, orders, looking
- `scheduler`, `pool`, `keeper`, `threads`: what gives actors their turns
- `testing`: a simulation on a virtual clock, in an order drawn from a seed
"""

from supervisors.actor import Actor, MonitorRef, Reply
from supervisors.budget import Budget, ChildBudget, RestartWindow, SupervisorBudget
from supervisors.cancel import CancelToken, cancellation
from supervisors.clock import Clock, RealClock
from supervisors.control import drain, exit_after, get_state, resume, suspend
from supervisors.debug import dump, dump_on_signal
from supervisors.dynamic import DynamicSupervisor
from supervisors.errors import (
    ActorExit,
    AlreadyPresent,
    AlreadySet,
    AlreadyStarted,
    CallingSelf,
    CallTimeout,
    Cancelled,
    Forked,
    InvalidSpec,
    MailboxFull,
    MaxChildren,
    NoProc,
    NotFound,
    ProcessEnded,
    RemoteError,
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
from supervisors.hosted import Hosted
from supervisors.kill import Killed, shield
from supervisors.limits import Limits
from supervisors.mailbox import Cell, Ignore, Refuse
from supervisors.partition import PartitionSupervisor, partition, partitions, resize
from supervisors.pool import PoolScheduler
from supervisors.ref import ActorRef
from supervisors.registry import AlreadyRegistered, Entry, Registry, Via
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
from supervisors.system import ActorSystem
from supervisors.task import TaskActor
from supervisors.tasks import Failed, Ok, Task, Tasks, TaskSupervisor
from supervisors.threads import ThreadScheduler
from supervisors.timers import TimerRef
from supervisors.tree import Node, tree

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
    "AlreadyRegistered",
    "AlreadySet",
    "AlreadyStarted",
    "Backoff",
    "Budget",
    "CallTimeout",
    "CallingSelf",
    "CancelToken",
    "Cancelled",
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
    "Entry",
    "Event",
    "Exit",
    "ExitReason",
    "Failed",
    "Forked",
    "Future",
    "GetChildSpec",
    "Hosted",
    "Ignore",
    "InvalidSpec",
    "Killed",
    "Limits",
    "MailboxFull",
    "MaxChildren",
    "MonitorRef",
    "NoProc",
    "Node",
    "NotFound",
    "Ok",
    "PartitionSupervisor",
    "PoolScheduler",
    "ProcessEnded",
    "RealClock",
    "Refuse",
    "Registry",
    "RemoteError",
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
    "Task",
    "TaskActor",
    "TaskDone",
    "TaskEnded",
    "TaskFailed",
    "TaskSupervisor",
    "Tasks",
    "TerminateChild",
    "ThreadScheduler",
    "TimerRef",
    "Via",
    "WhichChildren",
    "WorkersExhausted",
    "cancellation",
    "count_children",
    "delete_child",
    "drain",
    "dump",
    "dump_on_signal",
    "exit_after",
    "get_child_spec",
    "get_state",
    "is_quiet",
    "partition",
    "partitions",
    "resize",
    "restart_child",
    "resume",
    "shield",
    "start_child",
    "suspend",
    "terminate_child",
    "tree",
    "which_children",
]
