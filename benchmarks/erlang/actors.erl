%% The Erlang side of the actor benchmarks: reads a term a line, {Work, Count, Batch}, does the work,
%% and answers with what it computed. What is measured, and how often, is the reader's affair.
-module(actors).
-behaviour(supervisor).
-export([main/0, init/1, start_child/1, child/1, start_crashing/2, crashing/2]).

main() ->
    loop(none).

loop(Kept) ->
    case io:get_line("") of
        eof -> halt();
        Line ->
            {ok, Tokens, _} = erl_scan:string(Line),
            {ok, {Work, Count, Batch}} = erl_parse:parse_term(Tokens),
            {Result, Next} = work(Work, Count, Batch, Kept),
            io:format("~w~n", [Result]),
            loop(Next)
    end.

%% A supervisor of children that are started on demand.

init({simple, Intensity, Restart, Start}) ->
    Flags = #{strategy => simple_one_for_one, intensity => Intensity, period => 3600},
    {ok, {Flags, [#{id => child, start => Start, restart => Restart, shutdown => 5000}]}}.

supervisor(Intensity, Restart, Start) ->
    {ok, Supervisor} = supervisor:start_link(?MODULE, {simple, Intensity, Restart, Start}),
    unlink(Supervisor),
    Supervisor.

plain() ->
    supervisor(0, temporary, {?MODULE, start_child, []}).

stop(Supervisor) ->
    Reference = monitor(process, Supervisor),
    exit(Supervisor, kill),
    receive {'DOWN', Reference, _, _, _} -> ok end.

%% Ends a supervisor as its parent does: by an exit signal that it obeys.
shut_down(Supervisor) ->
    Reference = monitor(process, Supervisor),
    gen_server:stop(Supervisor, shutdown, infinity),
    receive {'DOWN', Reference, _, _, _} -> ok end.

start_child(Key) ->
    proc_lib:start_link(?MODULE, child, [Key]).

%% Counts what it is told, answers what it is asked. With a key it is registered under it.
child(Key) ->
    case Key of
        none -> ok;
        _ -> ets:insert(names, {Key, self()})
    end,
    proc_lib:init_ack({ok, self()}),
    serve(0).

serve(Count) ->
    receive
        {ask, From, Reference, N} ->
            From ! {Reference, Count + N},
            serve(Count + N);
        {tell, N} -> serve(Count + N)
    end.

ask(Pid, N) ->
    Reference = monitor(process, Pid),
    Pid ! {ask, self(), Reference, N},
    receive {Reference, Answer} -> demonitor(Reference, [flush]), Answer end.

start_crashing(Left, Owner) ->
    proc_lib:start_link(?MODULE, crashing, [Left, Owner]).

crashing(Left, Owner) ->
    process_flag(trap_exit, false),
    proc_lib:init_ack({ok, self()}),
    case counters:get(Left, 1) of
        0 -> Owner ! crashed_enough, receive never -> ok end;
        _ -> counters:sub(Left, 1, 1), self() ! crash, receive crash -> exit(crash) end
    end.

names() ->
    case ets:info(names) of
        undefined -> ets:new(names, [public, named_table, set]);
        _ -> ets:delete_all_objects(names)
    end.

start_many(Supervisor, Count) ->
    [begin {ok, Pid} = supervisor:start_child(Supervisor, [N]), Pid end || N <- lists:seq(1, Count)].

%% The works. `Kept` is what a work that is not timed has left for the next.

work(start_stop, Count, Batch, _) ->
    Supervisor = plain(),
    Stopped = [begin
                   Pids = [begin {ok, Pid} = supervisor:start_child(Supervisor, [none]), Pid end
                           || _ <- lists:seq(1, Batch)],
                   [ok = supervisor:terminate_child(Supervisor, Pid) || Pid <- Pids],
                   Batch
               end || _ <- lists:seq(1, Count div Batch)],
    stop(Supervisor),
    {lists:sum(Stopped), none};
work(ask, Count, _, _) ->
    {ok, Pid} = start_child(none),
    unlink(Pid),
    Answer = lists:foldl(fun(_, _) -> ask(Pid, 1) end, 0, lists:seq(1, Count)),
    exit(Pid, kill),
    {Answer, none};
work(tell, Count, _, _) ->
    {ok, Pid} = start_child(none),
    unlink(Pid),
    [Pid ! {tell, 1} || _ <- lists:seq(1, Count)],
    Answer = ask(Pid, 0),
    exit(Pid, kill),
    {Answer, none};
work(restarts, Count, _, _) ->
    Left = counters:new(1, []),
    counters:put(Left, 1, Count),
    Supervisor = supervisor(Count + 1, permanent, {?MODULE, start_crashing, [Left, self()]}),
    {ok, _} = supervisor:start_child(Supervisor, []),
    receive crashed_enough -> ok end,
    stop(Supervisor),
    {Count, none};
work(end_all, _, _, none) ->
    {0, none};
work(end_all, _, _, {Supervisor, _}) ->
    stop(Supervisor),
    garbage_collect(),
    {0, none};
work(start_all, Count, _, none) ->
    names(),
    Supervisor = plain(),
    Pids = start_many(Supervisor, Count),
    {Count, {Supervisor, Pids}};
work(tell_all, _, _, {_, Pids} = Kept) ->
    [Pid ! {tell, 1} || Pid <- Pids],
    [ask(Pid, 0) || Pid <- [lists:last(Pids)]],
    {length(Pids), Kept};
work(counted, _, _, {_, Pids} = Kept) ->
    {lists:sum([ask(Pid, 0) || Pid <- Pids]), Kept};
work(shut_down, _, _, {Supervisor, Pids}) ->
    shut_down(Supervisor),
    {length([Pid || Pid <- Pids, not is_process_alive(Pid)]), none};
work(memory, _, _, Kept) ->
    {erlang:memory(total), Kept}.
