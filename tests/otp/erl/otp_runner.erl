%% Runs scenarios on OTP: reads a file of steps, writes the trace of each. See the Python side for
%% the language. Run with one scheduler (+S 1:1): then "everybody waits" can be seen from outside.
-module(otp_runner).

-export([main/0]).

main() ->
    [In, Out] = init:get_plain_arguments(),
    logger:set_primary_config(level, none),
    process_flag(trap_exit, true),
    register(otp_runner, self()),
    {ok, File} = file:open(Out, [write]),
    Boot = processes(),
    [scenario(S, Boot, File) || S <- scenarios(In)],
    ok = file:close(File),
    halt(0).

scenarios(In) ->
    {ok, Text} = file:read_file(In),
    [string:lexemes(Block, "\n")
     || Block <- string:split(binary_to_list(Text), "\n\n", all), string:trim(Block) =/= ""].

scenario([Title | Lines], Boot, File) ->
    ets:new(otp_plan, [named_table, public]),
    ets:new(otp_names, [named_table, public]),
    ets:new(otp_pids, [named_table, public]),
    ets:new(otp_children, [named_table, public, duplicate_bag]),
    {ok, _} = otp_collector:start(),
    put(settles, true),
    put(unordered, false),
    put(timers, #{}),
    Trace = [step(Line) || Line <- Lines],
    Ending = [["  ", L, "\n"] || L <- ending()],
    ok = file:write(File, [Title, "\n", Trace, "> end\n", Ending, "\n"]),
    sweep(Boot),
    [ets:delete(Table) || Table <- [otp_plan, otp_names, otp_pids, otp_children]].

%% End all that the scenario has left.
sweep(Boot) ->
    [exit(P, kill) || P <- processes() -- Boot, P =/= self()],
    settle(),
    flush().

flush() -> receive _ -> flush() after 0 -> ok end.

%% Do one step; return what is to be written of it. A quick one lets nobody else run.
step(Line) ->
    {Words, Options} = read(Line),
    case define(Words, Options) of
        done -> [];
        no -> step(Line, Words, Options)
    end.

step(Line, ["quick" | Words], Options) ->
    shown(Line, perform(Words, Options), []);
step(Line, Words, Options) ->
    Result = guarded(Line, fun() -> perform(Words, Options) end),
    [settle() || get(settles)],
    shown(Line, Result, lines(get(settles))).

shown(Line, Result, Observed) ->
    Results = [["= ", Result] || Result =/= none],
    [["> ", Line, "\n"] | [["  ", L, "\n"] || L <- Results ++ Observed]].

%% Words, and options as a map.
read(Line) ->
    All = string:lexemes(Line, " "),
    {Options, Words} = lists:partition(fun(W) -> lists:member($=, W) end, All),
    {Words, maps:from_list([list_to_tuple(string:split(O, "=")) || O <- Options])}.

guarded(Line, Do) ->
    Stuck = lists:flatten(["stuck: ", Line]),
    Dog = spawn(fun() -> receive after 20000 -> erlang:halt(Stuck) end end),
    Result = Do(),
    exit(Dog, kill),
    Result.

lines(false) -> []; % what has happened by now is chance: it is told later
lines(true) ->
    Entries = otp_collector:take(),
    Tree = [Text || {tree, Text} <- Entries],
    Witnesses = lists:usort([W || {W, _} <- Entries, W =/= tree]),
    Sorted = case get(unordered) of true -> lists:sort(Tree); false -> Tree end,
    Sorted ++ [[W, ": ", Text] || W <- Witnesses, {V, Text} <- Entries, V =:= W].

ending() ->
    Alive = otp_collector:alive(),
    Supervisors = [{N, find(N)} || N <- Alive, is_supervisor(N)],
    [[Api, " ", N, ": ", patient(fun() -> ask(Api, Pid) end)]
     || {N, Pid} <- Supervisors, Api <- ["which", "count"]]
        ++ [["alive", [[" ", N] || N <- Alive]], ["names", [[" ", N] || N <- names()]]].

is_supervisor(Name) ->
    [Label | _] = string:lexemes(Name, "#"),
    ets:member(otp_plan, {supervisor, Label}).

names() ->
    Known = [{P, otp_collector:name(P)} || N <- otp_collector:alive(), P <- [find(N)]],
    lists:sort([[atom_to_list(R), "=", Name] || {P, Name} <- Known,
                                                {registered_name, R} <- [registered(P)]]).

registered(Pid) ->
    case process_info(Pid, registered_name) of
        {registered_name, _} = Found -> Found;
        _ -> none
    end.

%% A supervisor that is blocked answers nobody.
patient(Do) ->
    Me = self(),
    Pid = spawn(fun() -> Me ! {self(), lists:flatten(Do())} end),
    settle(),
    receive {Pid, Text} -> Text after 100 -> "no answer" end.

%% Quiescence: all other processes wait, again and again, with the same number of messages.

settle() -> settle(none, 0).

settle(_, 3) -> ok;
settle(Before, Times) ->
    erlang:yield(),
    case look() of
        busy -> settle(none, 0);
        Before -> settle(Before, Times + 1);
        Other -> settle(Other, 0)
    end.

look() ->
    Others = processes() -- [self()],
    Lengths = [{P, process_info(P, message_queue_len)} || P <- Others],
    Waits = fun(P) -> process_info(P, status) =:= {status, waiting} end,
    case lists:all(Waits, Others) of
        true -> Lengths;
        false -> busy
    end.

%% Definitions

define(["unordered"], _) -> put(unordered, true), done;
define(["supervisor", Label], Options) -> ets:insert(otp_plan, {{supervisor, Label}, Options}), done;
define(["dynamic", Label], Options) ->
    ets:insert(otp_plan, {{supervisor, Label}, Options#{"strategy" => "simple_one_for_one"}}),
    ets:insert_new(otp_plan, {{template, Label}, #{}}),
    done;
define(["template", Label], Options) -> ets:insert(otp_plan, {{template, Label}, Options}), done;
define(["child", Label, Id], Options) -> ets:insert(otp_children, {Label, Id, Options}), done;
define(_, _) -> no.

%% Steps. Those of a process are sent to it; the rest the runner does.

perform(["start", Label], _) -> otp_words:started(otp_sup:start_link(Label));
perform(["start_by", P, Label], _) -> tell(P, {start_supervisor, Label});
perform(["process", Label], Options) ->
    case otp_child:start(plain, Options, Label) of
        {ok, _} -> none;
        Error -> otp_words:started(Error)
    end;
perform(["exit", P, Reason], _) -> tell(P, {exit, term(Reason)});
perform(["raise", P, Error], _) -> tell(P, {raise, list_to_atom(Error)});
perform(["kill", P], _) -> exit(find(P), kill), none;
perform(["signal", "runner", P, Reason], _) -> exit(find(P), term(Reason)), none;
perform(["signal", From, P, Reason], _) -> tell(From, {signal, find(P), term(Reason)});
perform(["sleep", P, Ms], _) -> tell(P, {sleep, list_to_integer(Ms)});
perform(["trap", P, Flag], _) -> tell(P, {trap, Flag =:= "on"});
perform(["link", P, Q], _) -> tell(P, {link, find(Q)});
perform(["unlink", P, Q], _) -> tell(P, {unlink, find(Q)});
perform(["monitor", P, Q, M], _) -> tell(P, {monitor, find(Q), M});
perform(["demonitor", P, M], _) -> tell(P, {demonitor, M});
perform(["end_and_unlink", P, Q, R], _) -> tell(P, {end_and_unlink, find(Q), term(R)});
perform(["end_and_demonitor", P, M, Q, R], _) -> tell(P, {end_and_demonitor, M, find(Q), term(R)});
perform(["start_monitored", P, Label, M], Options) -> tell(P, {start_monitored, Label, M, Options});
perform(["send", "runner", P, Word], _) -> find(P) ! {word, Word}, none;
perform(["send", From, P, Word], _) -> tell(From, {send, find(P), Word});
perform(["send_exit", From, P, Word, R], _) -> tell(From, {send_exit, find(P), Word, term(R)});
perform(["send_after", Ms, P, Word, T], _) ->
    Timer = erlang:send_after(list_to_integer(Ms), find(P), {word, Word}),
    put(timers, (get(timers))#{T => Timer}),
    none;
perform(["cancel", T], _) ->
    case erlang:cancel_timer(maps:get(T, get(timers))) of
        false -> "false";
        Left when is_integer(Left) -> "true"
    end;
perform(["call", "runner", P | Request], Options) ->
    otp_child:call(find(P), request(Request), timeout(Options), caught);
perform(["call", From, P | Request], Options) ->
    Caught = case Options of #{"caught" := "no"} -> uncaught; _ -> caught end,
    tell(From, {call, find(P), request(Request), timeout(Options), Caught});
perform(["advance", Ms], _) -> timer:sleep(list_to_integer(Ms)), none;
perform(["align", Ms], _) ->
    Now = erlang:monotonic_time(millisecond),
    Left = list_to_integer(Ms) - ((Now rem 1000) + 1000) rem 1000,
    timer:sleep((Left + 1000) rem 1000),
    none;
perform(["await" | Words], _) -> await(string:join(Words, " ")), none;
perform(["settles", Flag], _) -> put(settles, Flag =:= "on"), none;
perform(["async", Client | Words], Options) -> client(Client, 0, Words, Options);
perform(["after", Ms, Client | Words], Options) ->
    client(Client, list_to_integer(Ms), Words, Options);
perform(["whereis", Name], _) -> otp_collector:name(whereis(list_to_atom(Name)));
perform(Words, Options) -> api(Words, Options).

await(Text) ->
    case otp_collector:seen(Text) of
        true -> ok;
        false -> timer:sleep(1), await(Text)
    end.

client(Client, Ms, Words, Options) ->
    spawn(fun() -> timer:sleep(Ms), otp_collector:note(Client, api(Words, Options)) end),
    none.

%% What supervisors are asked

api(["kill", P], _) -> exit(find(P), kill), "done";
api(["exit", P, Reason], _) -> tell(P, {exit, term(Reason)}), "done";
api(["signal", P, Reason], _) -> exit(find(P), term(Reason)), "done";
api(["call" | _] = Words, Options) -> perform(Words, Options), "done";
api(["stop", P, Reason], _) ->
    answer(fun() -> gen_server:stop(find(P), term(Reason), infinity) end);
api(["start_child", S, Label], Options) ->
    case ets:lookup(otp_plan, {template, S}) of
        [] -> answer(fun() -> supervisor:start_child(find(S), otp_sup:spec(Label, Options)) end);
        _ -> answer(fun() -> supervisor:start_child(find(S), [Label]) end)
    end;
api(["terminate_child", S, Key], _) -> manage(terminate_child, S, Key);
api(["restart_child", S, Key], _) -> manage(restart_child, S, Key);
api(["delete_child", S, Key], _) -> manage(delete_child, S, Key);
api(["get_childspec", S, Key], _) ->
    case supervisor:get_childspec(find(S), key(Key)) of
        {ok, Spec} -> spec(Spec);
        Error -> otp_words:result(Error)
    end;
api([Question, S], _) -> ask(Question, find(S)).

manage(Function, S, Key) -> answer(fun() -> supervisor:Function(find(S), key(Key)) end).

ask(Question, Pid) ->
    try question(Question, Pid)
    catch exit:{Reason, {gen_server, call, _}} -> ["exit ", otp_words:reason(Reason)]
    end.

question("which", Pid) ->
    lists:join(" ", lists:sort([child(C) || C <- supervisor:which_children(Pid)]));
question("order", Pid) ->
    lists:join(" ", [atom_to_list(Id) || {Id, _, _, _} <- supervisor:which_children(Pid)]);
question("count", Pid) -> counts(supervisor:count_children(Pid), is_simple(Pid));
question("specs", Pid) ->
    integer_to_list(proplists:get_value(specs, supervisor:count_children(Pid))).

counts(Counts, Simple) ->
    Keys = case Simple of true -> []; false -> [specs] end ++ [active, supervisors, workers],
    lists:join(" ", [io_lib:format("~s=~b", [K, proplists:get_value(K, Counts)]) || K <- Keys]).

is_simple(Pid) ->
    [Label | _] = string:lexemes(otp_collector:name(Pid), "#"),
    ets:member(otp_plan, {template, Label}).

child({undefined, Pid, Type, _}) -> lists:flatten([otp_collector:name(Pid), "/", atom_to_list(Type)]);
child({Id, Pid, Type, _}) ->
    lists:flatten(io_lib:format("~s=~s/~s", [Id, otp_collector:name(Pid), Type])).

spec(#{id := Id, restart := R, shutdown := S, type := T, significant := X}) ->
    io_lib:format("~s ~s ~s shutdown=~p significant=~s", [Id, R, T, S, X]).

answer(Do) ->
    try otp_words:result(Do())
    catch
        exit:{Reason, {gen_server, call, _}} -> ["exit ", otp_words:reason(Reason)];
        exit:{Reason, {sys, terminate, _}} -> ["exit ", otp_words:reason(Reason)];
        exit:Reason -> ["exit ", otp_words:reason(Reason)]
    end.

%% Small things

find(Word) ->
    [{_, Pid}] = ets:lookup(otp_pids, Word),
    Pid.

key("@" ++ Word) -> find(Word);
key(Word) -> list_to_atom(Word).

term(Word) -> otp_words:term(Word).

tell(P, Command) -> gen_server:cast(find(P), Command), none.

timeout(#{"timeout" := Ms}) -> list_to_integer(Ms);
timeout(_) -> 5000.

request(["echo", Word]) -> {echo, Word};
request(["hang"]) -> hang;
request(["slow", Ms]) -> {slow, list_to_integer(Ms)};
request(["raise", Error]) -> {raise, list_to_atom(Error)};
request([Verb, Reason]) -> {list_to_atom(Verb), term(Reason)}.
