%% Erlang terms as the words that traces have: only what both sides can say.
-module(otp_words).

-export([reason/1, result/1, started/1, term/1]).

%% A word of a scenario as an exit reason.
term("shutdown:" ++ Term) -> {shutdown, list_to_atom(Term)};
term(Word) -> list_to_atom(Word).

reason({shutdown, {failed_to_start_child, Id, Reason}}) ->
    io_lib:format("shutdown:failed_to_start(~s,~s)", [Id, reason(Reason)]);
reason({shutdown, Term}) -> io_lib:format("shutdown:~p", [Term]);
reason({Where, Error}) when Where =:= supervisor_data; Where =:= start_spec ->
    {ok, Field} = field(Error),
    "invalid " ++ Field;
reason({timeout, {gen_server, call, _}}) -> "timeout";
reason({Reason, {gen_server, call, _}}) -> "call:" ++ reason(Reason);
reason({already_started, Pid}) -> "already_started " ++ otp_collector:name(Pid);
reason({Error, Stack}) when is_atom(Error), is_list(Stack) -> io_lib:format("error:~p", [Error]);
reason(Reason) when is_atom(Reason) -> atom_to_list(Reason);
reason(Reason) -> io_lib:format("~p", [Reason]).

%% The answer of a supervisor.
result(ok) -> "ok";
result({ok, Pid}) -> "ok " ++ otp_collector:name(Pid);
result({error, {already_started, Pid}}) -> "error already_started " ++ otp_collector:name(Pid);
result({error, {Reason, Child}}) when element(1, Child) =:= child ->
    "error start_error " ++ reason(Reason);
result({error, simple_one_for_one}) -> "error not_for_dynamic";
result({error, Error}) ->
    case field(Error) of
        {ok, Field} -> "error invalid " ++ Field;
        none when is_atom(Error) -> "error " ++ atom_to_list(Error);
        none -> "error start_error " ++ reason(Error)
    end;
result({exit, Reason}) -> "exit " ++ reason(Reason).

%% The answer of start_link.
started({ok, Pid}) -> "ok " ++ otp_collector:name(Pid);
started(ignore) -> "ignore";
started({error, {already_started, _}} = Error) -> result(Error);
started({error, Reason}) -> "error " ++ reason(Reason).

%% Which flag or field of a specification an error is about.
field({bad_combination, [_, {Field, _}]}) -> {ok, atom_to_list(Field)};
field({duplicate_child_name, _}) -> {ok, "id"};
field({Error, _}) when is_atom(Error) ->
    case atom_to_list(Error) of
        "invalid_child_" ++ Field -> {ok, Field};
        "invalid_restart_type" -> {ok, "restart"};
        "invalid_" ++ Field -> {ok, Field};
        _ -> none
    end;
field(_) -> none.
