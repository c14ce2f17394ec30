%% The supervisors of scenarios, built from the definitions that the runner keeps in `otp_plan`.
-module(otp_sup).
-behaviour(supervisor).

-export([start_link/1, spec/2, init/1]).

start_link(Label) ->
    {_, Options} = plan({supervisor, Label}),
    case Options of
        #{"name" := Name} -> supervisor:start_link({local, list_to_atom(Name)}, ?MODULE, Label);
        _ -> supervisor:start_link(?MODULE, Label)
    end.

plan(Key) -> hd(ets:lookup(otp_plan, Key)).

init(Label) ->
    {_, Options} = plan({supervisor, Label}),
    Outcomes = string:lexemes(maps:get("starts", Options, "ok"), ","),
    Attempt = otp_collector:attempt(Label),
    case lists:nth(min(Attempt, length(Outcomes)), Outcomes) of
        "ok" ->
            otp_collector:note(tree, ["start ", otp_collector:enter(Label, self())]),
            {ok, {flags(Options), children(Label, Options)}};
        "ignore" ->
            otp_collector:note(tree, ["ignore ", Label]),
            ignore;
        "error" ->
            otp_collector:note(tree, ["fail ", Label]),
            erlang:error(boom)
    end.

flags(Options) ->
    #{strategy => atom("strategy", Options, "one_for_one"),
      intensity => number(maps:get("intensity", Options, "1")),
      period => number(maps:get("period", Options, "5")),
      auto_shutdown => atom("auto_shutdown", Options, "never")}.

children(Label, #{"strategy" := "simple_one_for_one"}) ->
    {_, Options} = plan({template, Label}),
    [(base("child", Options))#{start => {otp_child, start_link, [Options]}}];
children(Label, _) ->
    [spec(Id, Options) || {_, Id, Options} <- ets:lookup(otp_children, Label)].

%% The child specification that a scenario writes in one line.
spec(Id, Options) -> (base(Id, Options))#{start => start(Id, Options)}.

start(_, #{"sup" := Label}) -> {?MODULE, start_link, [Label]};
start(Id, Options) -> {otp_child, start_link, [Options, Id]}.

base(Id, Options) ->
    Given = [{restart, "restart", fun list_to_atom/1},
             {shutdown, "shutdown", fun number/1},
             {type, "type", fun list_to_atom/1},
             {significant, "significant", fun yes/1}],
    Keys = [{Key, Read(maps:get(Word, Options))} || {Key, Word, Read} <- Given,
                                                    maps:is_key(Word, Options)],
    Type = case Options of #{"sup" := _} -> [{type, supervisor}]; _ -> [] end,
    maps:from_list([{id, list_to_atom(Id)} | Type ++ Keys]).

atom(Key, Options, Default) -> list_to_atom(maps:get(Key, Options, Default)).

yes("yes") -> true;
yes("no") -> false;
yes(Word) -> list_to_atom(Word).

number(Word) ->
    try list_to_integer(Word) catch error:badarg -> list_to_atom(Word) end.
