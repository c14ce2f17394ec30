%% The journal of a scenario: who has started, failed, ended, and what each witness saw, in order.
%%
%% Every process of a scenario enters itself here before its start goes on, so that its monitor
%% stands before it can end.
-module(otp_collector).
-behaviour(gen_server).

-export([start/0, attempt/1, enter/2, plain/2, note/2, take/0, name/1, alive/0, seen/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

start() -> gen_server:start({local, ?MODULE}, ?MODULE, [], []).

%% Count an attempt to start Label; return its number.
attempt(Label) -> call({attempt, Label}).

%% The calling process, with Label, watches over itself from now on; return its name.
enter(Label, Pid) -> call({enter, Label, Pid}).

%% A process that no supervisor starts: its name is its label.
plain(Label, Pid) -> call({plain, Label, Pid}).

note(Witness, Text) -> gen_server:cast(?MODULE, {note, Witness, lists:flatten(Text)}).

%% Return what was noted since the last call, as {Witness, Text}, oldest first.
take() -> call(take).

%% Tell whether Text is among what take/0 would return.
seen(Text) -> call({seen, Text}).

name(undefined) -> "undefined";
name(restarting) -> "restarting";
name(Pid) ->
    case ets:lookup(otp_names, Pid) of
        [{_, Name}] -> Name;
        [] -> case whereis(otp_runner) of Pid -> "runner"; _ -> "somebody" end
    end.

alive() -> call(alive).

call(Request) -> gen_server:call(?MODULE, Request, infinity).

init([]) ->
    {ok, #{attempts => #{}, numbers => #{}, refs => #{}, entries => []}}.

handle_call({attempt, Label}, _, S = #{attempts := Attempts}) ->
    N = maps:get(Label, Attempts, 0) + 1,
    {reply, N, S#{attempts := Attempts#{Label => N}}};
handle_call({enter, Label, Pid}, _, S = #{numbers := Numbers}) ->
    N = maps:get(Label, Numbers, 0) + 1,
    Name = lists:flatten(io_lib:format("~s#~b", [Label, N])),
    {reply, Name, watch([Label, Name], Pid, S#{numbers := Numbers#{Label => N}})};
handle_call({plain, Label, Pid}, _, S) ->
    {reply, Label, watch([Label], Pid, S)};
handle_call(take, _, S = #{entries := Entries}) ->
    {reply, lists:reverse(Entries), S#{entries := []}};
handle_call({seen, Text}, _, S = #{entries := Entries}) ->
    {reply, lists:any(fun({W, T}) -> text(W, T) =:= Text end, Entries), S};
handle_call(alive, _, S) ->
    {reply, lists:sort([N || {P, N} <- ets:tab2list(otp_names), is_process_alive(P)]), S}.

handle_cast({note, Witness, Text}, S) -> {noreply, entry(Witness, Text, S)}.

handle_info({'DOWN', Ref, process, Pid, Reason}, S = #{refs := Refs}) ->
    Text = ["down ", name(Pid), " ", otp_words:reason(Reason)],
    {noreply, entry(tree, lists:flatten(Text), S#{refs := maps:remove(Ref, Refs)})}.

%% A process is known by its label, if it is the latest, and by label#number.
watch(Words, Pid, S = #{refs := Refs}) ->
    ets:insert(otp_names, {Pid, lists:last(Words)}),
    ets:insert(otp_pids, [{Word, Pid} || Word <- Words]),
    S#{refs := Refs#{monitor(process, Pid) => Pid}}.

entry(Witness, Text, S = #{entries := Entries}) -> S#{entries := [{Witness, Text} | Entries]}.

text(tree, Text) -> Text;
text(Witness, Text) -> Witness ++ ": " ++ Text.
