%% The process that scenarios play with: a child of a supervisor, or one on its own.
-module(otp_child).
-behaviour(gen_server).

-export([start_link/2, start/3, start_monitor/2, call/4]).
-export([init/1, handle_call/3, handle_cast/2, handle_continue/2, handle_info/2, terminate/2]).

start_link(Options, Label) -> gen(start_link, {child, Label, Options}, Options).

start(Kind, Options, Label) -> gen(start, {Kind, Label, Options}, Options).

start_monitor(Options, Label) -> gen(start_monitor, {plain, Label, Options}, Options).

gen(Function, Args, #{"name" := Name}) ->
    gen_server:Function({local, list_to_atom(Name)}, ?MODULE, Args, []);
gen(Function, Args, _) -> gen_server:Function(?MODULE, Args, []).

init({Kind, Label, Options}) ->
    process_flag(trap_exit, maps:get("trap", Options, "no") =:= "yes"),
    Outcomes = string:lexemes(maps:get("starts", Options, "ok"), ","),
    Attempt = otp_collector:attempt(Label),
    Outcome = lists:nth(min(Attempt, length(Outcomes)), Outcomes),
    Noted = Attempt =< length(Outcomes) orelse maps:get("loop", Options, "no") =:= "no",
    begin_as(string:lexemes(Outcome, ":"), Noted,
             #{kind => Kind, label => Label, options => Options, monitors => #{}}).

begin_as(["ok"], _, S) -> ready(enter(S));
begin_as(["dies", Reason], _, S) ->
    {ok, Entered} = ready(enter(S)),
    {ok, Entered, {continue, {exit, otp_words:term(Reason)}}};
begin_as(["slow", Ms], _, S) ->
    Entered = enter(S),
    timer:sleep(list_to_integer(Ms)),
    ready(Entered);
begin_as(["calls"], _, S = #{label := Label}) ->
    supervisor:terminate_child(hd(get('$ancestors')), list_to_atom(Label)),
    ready(enter(S));
begin_as(["error"], Noted, #{label := Label}) ->
    [otp_collector:note(tree, ["fail ", Label]) || Noted],
    erlang:error(boom);
begin_as(["ignore"], _, #{label := Label}) ->
    otp_collector:note(tree, ["ignore ", Label]),
    ignore.

enter(S = #{kind := child, label := Label}) -> S#{name => otp_collector:enter(Label, self())};
enter(S = #{kind := plain, label := Label}) -> S#{name => otp_collector:plain(Label, self())}.

ready(S = #{name := Name}) ->
    otp_collector:note(tree, ["start ", Name]),
    {ok, S}.

%% Calls: what the caller asks for is what happens.

handle_call({echo, Word}, _, S) -> {reply, Word, S};
handle_call(hang, _, S) -> {noreply, S};
handle_call({exit, Reason}, _, S) -> {stop, Reason, S};
handle_call({answer_exit, Reason}, _, S) -> {stop, Reason, "answered", S};
handle_call({raise, Error}, _, _) -> erlang:error(Error);
handle_call({slow, Ms}, From, S) ->
    erlang:send_after(Ms, self(), {answer, From}),
    {noreply, S}.

handle_cast({exit, Reason}, S) -> {stop, Reason, S};
handle_cast({raise, Error}, _) -> erlang:error(Error);
handle_cast({sleep, Ms}, S) ->
    timer:sleep(Ms),
    {noreply, S};
handle_cast({trap, Flag}, S) ->
    process_flag(trap_exit, Flag),
    {noreply, S};
handle_cast({link, Pid}, S) ->
    link(Pid),
    {noreply, S};
handle_cast({unlink, Pid}, S) ->
    cut(Pid),
    {noreply, S};
handle_cast({monitor, Pid, M}, S = #{monitors := Ms}) ->
    {noreply, S#{monitors := Ms#{M => monitor(process, Pid)}}};
handle_cast({demonitor, M}, S) -> {noreply, forget(M, S)};
handle_cast({signal, Pid, Reason}, S) ->
    exit(Pid, Reason),
    {noreply, S};
handle_cast({send, Pid, Word}, S) ->
    Pid ! {word, Word},
    {noreply, S};
handle_cast({send_exit, Pid, Word, Reason}, S) ->
    Pid ! {word, Word},
    {stop, Reason, S};
handle_cast({end_and_unlink, Pid, Reason}, S) ->
    end_it(Pid, Reason),
    cut(Pid),
    {noreply, S};
handle_cast({end_and_demonitor, M, Pid, Reason}, S) ->
    end_it(Pid, Reason),
    {noreply, forget(M, S)};
handle_cast({start_monitored, Label, M, Options}, S = #{monitors := Ms}) ->
    {ok, {_, Ref}} = start_monitor(Options, Label),
    {noreply, S#{monitors := Ms#{M => Ref}}};
handle_cast({start_supervisor, Label}, S) ->
    note(["start_link ", otp_words:started(otp_sup:start_link(Label))], S),
    {noreply, S};
handle_cast({call, Pid, Request, Timeout, caught}, S) ->
    note(call(Pid, Request, Timeout, caught), S),
    {noreply, S};
handle_cast({call, Pid, Request, Timeout, uncaught}, S) ->
    note(["reply ", gen_server:call(Pid, Request, Timeout)], S),
    {noreply, S}.

handle_continue({exit, Reason}, S) -> {stop, Reason, S}.

handle_info({'EXIT', From, Reason}, S) ->
    note(["EXIT ", otp_collector:name(From), " ", otp_words:reason(Reason)], S),
    {noreply, S};
handle_info({'DOWN', Ref, process, _, Reason}, S = #{monitors := Ms, options := Options}) ->
    [M] = [M || {M, R} <- maps:to_list(Ms), R =:= Ref],
    note(["DOWN ", M, " ", otp_words:reason(Reason)], S),
    inherit(maps:get("heir", Options, undefined), S),
    {noreply, S};
handle_info({word, Word}, S) ->
    note(["got ", Word], S),
    {noreply, S};
handle_info({answer, From}, S) ->
    note("slow done", S),
    gen_server:reply(From, "slow"),
    {noreply, S};
handle_info(_, S) -> % a late reply: nothing that a program would see
    {noreply, S}.

terminate(Reason, S = #{name := Name, options := Options}) ->
    [otp_collector:note(tree, ["stop ", Name, " ", otp_words:reason(Reason)])
     || maps:get("tells", Options, "no") =:= "yes"],
    finish(string:lexemes(maps:get("ends", Options, "ok"), ":"), S).

finish(["ok"], _) -> ok;
finish(["slow", Ms], _) -> timer:sleep(list_to_integer(Ms));
finish(["raise"], _) -> erlang:error(boom).

%% Helpers

note(Text, #{name := Name}) -> otp_collector:note(Name, Text).

cut(Pid) ->
    unlink(Pid),
    receive {'EXIT', Pid, _} -> ok after 0 -> ok end.

forget(M, S = #{monitors := Ms}) ->
    Stood = erlang:demonitor(maps:get(M, Ms), [flush, info]),
    note(["demonitor ", M, " ", atom_to_list(Stood)], S),
    S.

end_it(Pid, Reason) ->
    exit(Pid, Reason),
    Ref = monitor(process, Pid),
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

inherit(undefined, _) -> ok;
inherit(Name, S) ->
    Started = start(plain, #{"name" => Name}, "heir"),
    note(["heir ", otp_words:started(Started)], S).

call(Pid, Request, Timeout, caught) ->
    try ["reply ", gen_server:call(Pid, Request, Timeout)]
    catch
        exit:{timeout, {gen_server, call, _}} -> "timeout";
        exit:{Reason, {gen_server, call, _}} -> ["exit ", otp_words:reason(Reason)]
    end.
