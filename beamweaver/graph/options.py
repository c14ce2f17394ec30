"""The options of the builder's methods, as types of their keyword arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from msgspec import UnsetType

    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.graph.migrations import Migration
    from beamweaver.graph.specs import FailurePolicy
    from beamweaver.types import Duration, RetryPolicy, TimeoutPolicy

__all__ = ["CompileOptions", "NodeDefaults", "NodeOptions"]


class NodeDefaults(TypedDict, total=False):
    """Options of `set_node_defaults`; None at a node turns a default off.

    Attributes:
        retries: Attempts after the first one, with the other values of `RetryPolicy`.
        retry: A whole policy, in place of `retries`; None for one attempt.
        timeout: Seconds (or a `timedelta`) for one attempt, or a `TimeoutPolicy`; None for no limit.
        error_handler: A function of `(failure, state, ctx)`, or fewer of these in that order, that is called
            after the last failed attempt in place of failing the run. What it returns is judged as what the
            node returns.
        cache: Not supported.
    """

    retries: int | None
    retry: RetryPolicy | UnsetType | None
    timeout: Duration | TimeoutPolicy | UnsetType | None
    error_handler: Callable[..., Any] | UnsetType | None
    cache: Any


class NodeOptions(NodeDefaults, total=False):
    """Options of `add_node`, beside those of `NodeDefaults`.

    Attributes:
        metadata: Notes on the node.
        destinations: Nodes that it reaches by `goto` or `Send`, for the check of reachability and drawings.
        defer: Whether it waits until the plan has no other task.
        input_schema: The form in which this node sees the state: only these keys, and those that only a
            `Send` brings.
        persistent: Whether a subgraph keeps its state over runs.
        key: Which of several states a persistent subgraph goes on with: the name of a key of the state, or a
            sync, quick function of the state that the task sees. It gives a text or an int.
        calls: The compiled graphs that its function calls by `ctx.call`, so that they can be read and edited
            by namespace also by a process in which they were not called yet.
        isolation: Not supported yet.
    """

    metadata: Mapping[str, Any] | None
    destinations: Sequence[str]
    defer: bool
    input_schema: Any
    persistent: bool
    key: str | Callable[[Any], str | int] | None
    calls: Sequence[CompiledGraph]
    isolation: str | None


class CompileOptions(TypedDict, total=False):
    """Options of `compile`.

    Attributes:
        checkpointer: Where threads are kept; None for threads that end with their call.
        failure_policy: `"proceed"` (default): siblings of a failed task finish; `"panic"`: they stop.
        step_timeout: Seconds for a step, or None.
        run_timeout: Seconds for a run, or None.
        interrupt_before: Nodes before which every run stops once; `"*"` for all.
        interrupt_after: Nodes after which every run stops once; `"*"` for all.
        max_concurrency: How many tasks of a step run at once, or None for all.
        recursion_limit: Steps since the last call after which a run is stopped; 100 by default.
        cache: Not supported.
        migrations: How threads of older versions become threads of this one, by the older version.
        on_failure: A function of `(failures, ctx)` that is called when a run has failed.
        strict: Whether values that a node changed in place are found at any depth, at a cost that grows with
            the state; None (default) for what the runtime says.
        allow_unreachable: Whether nodes that nothing names are no fault.
    """

    checkpointer: Any
    failure_policy: FailurePolicy
    step_timeout: Duration | None
    run_timeout: Duration | None
    interrupt_before: Sequence[str]
    interrupt_after: Sequence[str]
    max_concurrency: int | None
    recursion_limit: int
    cache: Any
    migrations: Mapping[int, Migration] | None
    on_failure: Callable[..., Any] | None
    strict: bool | None
    allow_unreachable: bool
