"""Cells of a session whose language is the shell: for each name a list of (cell, standard output[, status[, stderr]]).

Those of CELLS run in one session, RESTORE before each of them; each of ALONE has a session of its own.
"""

RESTORE = """trap - EXIT USR1; set +efux +o pipefail; set --; shopt -u nullglob expand_aliases; unset V x; umask 022
exec 3>&- 5>&-; cd "$HERE"; rm -rf log file ready; :"""

CELLS: dict[str, list[tuple]] = {
    # ---- state
    "variable": [("x=5", ""), ("echo $x", "5\n")],
    "folder": [("cd /usr", ""), ("pwd", "/usr\n")],
    "folder-before": [("cd /usr; cd /etc", ""), ("cd - >/dev/null; pwd", "/usr\n")],
    "pushd": [("pushd /usr >/dev/null", ""), ("popd >/dev/null; [[ $PWD != /usr ]]", "")],
    "function": [("f() { echo f $1; }", ""), ("f 2", "f 2\n")],
    "array": [("a=(1 2 3)", ""), ("echo ${a[@]:1} ${#a[@]}", "2 3 3\n")],
    "declare": [("declare -A m=([k]=v)", ""), ("echo ${m[k]}", "v\n")],
    "declare-after-exit": [("declare -i n=3; exit 0", ""), ("n+=4; echo $n", "7\n")],
    "export": [("export V=1", ""), ("bash -c 'echo $V'", "1\n")],
    "unexported": [("V=1", ""), ("bash -c 'echo [$V]'", "[]\n")],
    "shopt": [("shopt -s nullglob", ""), ("echo /none*", "\n")],
    "noglob": [("set -f", ""), ("echo *", "*\n")],
    "umask": [("umask 027", ""), ("umask", "0027\n")],
    "positional": [("set -- a b", ""), ("echo $# $2", "2 b\n")],
    "status-of-the-cell-before": [("false", "", 1), ("echo $?", "1\n")],
    "descriptor": [("exec 5>log; echo one >&5", ""), ("echo two >&5; cat log", "one\ntwo\n")],
    "readonly": [("readonly R=1", ""), ("R=2", "", 1, "readonly"), ("echo $R", "1\n")],
    "local-outside-of-a-function": [("local v=1", "", 1, "can only be used in a function")],
    "seconds": [("SECONDS=100", ""), ("((SECONDS >= 100))", "")],
    "unset": [("x=1", ""), ("unset x", ""), ("echo [${x-none}]", "[none]\n")],
    # ---- how a cell ends
    "exit": [("exit 3", "", 3), ("echo here", "here\n")],
    "exit-keeps-state": [("x=1; cd /usr; f() { echo f; }; exit 3", "", 3), ("echo $x $PWD; f", "1 /usr\nf\n")],
    "exit-in-a-function": [("f() { local v=1; exit 4; }; f; echo no", "", 4), ("echo [${v-}]", "[]\n")],
    "exit-in-a-loop": [("for i in 1 2 3; do ((i == 2)) && exit 5; echo $i; done", "1\n", 5), ("echo $i", "2\n")],
    "exit-with-redirection": [("{ exit 6; } >log", "", 6), ("echo seen", "seen\n")],
    "exit-of-a-subshell": [("(exit 7); echo $?", "7\n")],
    "exit-twice": [("exit 1", "", 1), ("exit 2", "", 2), ("exit 3", "", 3), ("echo here", "here\n")],
    "exit-without-status": [("false; exit", "", 1)],
    "exit-status": [("exit -1", "", 255), ("exit 256", ""), ("exit 08", "", 8), ("exit x", "", 2, "numeric argument")],
    "exit-keeps-arguments": [("set -- a b; exit 3", "", 3), ("echo $# $2", "2 b\n")],
    "return": [("echo a; return 8; echo b", "a\n", 8), ("echo here", "here\n")],
    "last-status": [("true; false", "", 1), ("false; true", "")],
    "errexit": [("set -e; false; echo no", "", 1), ("echo here", "here\n")],
    "errexit-stays": [("set -e", ""), ("x=1; false; x=2", "", 1), ("echo $x $-", "1 ehB\n")],
    "nounset": [("set -u; echo $none; echo no", "", 1, "none: unbound variable"), ("echo here", "here\n")],
    "pipefail": [("set -o pipefail", ""), ("false | true", "", 1)],
    "parameter-error": [("echo ${none:?is missing}", "", 1, "none: is missing"), ("echo here", "here\n")],
    "unknown-command": [("nosuchcommand", "", 127, r"In\[\d+\]: line 1: nosuchcommand: command not found")],
    "line-of-an-error": [("true\n\nnosuchcommand", "", 127, r"In\[\d+\]: line 3: nosuchcommand")],
    "syntax-error": [("if true; then", "", 2, "syntax error"), ("echo here", "here\n")],
    "quote-that-does-not-end": [("echo 'a", "", 2, "unexpected EOF"), ("echo here", "here\n")],
    "not-executable": [("touch file; ./file", "", 126, "Permission denied")],
    "killed-program": [("bash -c 'kill -TERM $$'", "", 143), ("echo here", "here\n")],
    # ---- handlers
    "trap-exit": [("trap 'echo bye $?' EXIT", ""), ("echo a; exit 4", "a\nbye 4\n", 4), ("exit 5", "", 5)],
    "trap-exit-exits": [("trap 'exit 9' EXIT; exit 1", "", 9), ("echo here", "here\n")],
    "trap-exit-removed": [("trap 'echo bye' EXIT", ""), ("trap - EXIT; exit 0", "")],
    "trap-of-a-subshell": [("(trap 'echo sub' EXIT)", "sub\n"), ("exit 0", "")],
    "trap-usr1": [("trap 'echo usr1' USR1; kill -USR1 $BASHPID", "usr1\n")],
    # ---- output
    "streams": [("echo out; echo err >&2", "out\n", 0, "^err\n$")],
    "xtrace": [("set -x; echo a", "a\n", 0, r"^\++ echo a\n$"), ("set +x", "", 0, r"^\++ set \+x\n$")],
    "xtrace-after-exit": [("set -x; exit 0", "", 0, r"^\++ exit 0\n$"), ("echo b", "b\n", 0, r"^\++ echo b\n$")],
    "no-newline": [("printf a", "a"), ("printf b", "b")],
    "utf-8": [("x='größe €'; echo ${#x} $x", "7 größe €\n")],
    "much": [("for i in {1..20000}; do echo line $i; done | tail -1", "line 20000\n")],
    "here-document": [("cat <<E\n$((1 + 1))\nE", "2\n")],
    "empty": [("", ""), ("# nothing", "")],
    "long-cell": [("x=" + "a" * 100000 + "; echo ${#x}", "100000\n")],
    # ---- input, jobs, processes
    "standard-input": [("read x; echo $? [$x]", "1 []\n"), ("cat", "")],
    "no-job-control": [("echo $-", "hB\n"), ("fg", "", 1, "no job control")],
    "background": [("{ sleep 0.2; echo late; } & wait; echo after", "late\nafter\n")],
    "background-job-stays": [("sleep 0.2 & p=$!", ""), ("wait $p; echo $?", "0\n")],
    "substitution": [("echo $(echo a) <(:) | sed 's,/dev/fd/.*,fd,'", "a fd\n")],
    "process-substitution": [("paste -d+ <(echo a) <(echo b)", "a+b\n")],
    "coproc": [("coproc cat; echo x >&${COPROC[1]}; read -u ${COPROC[0]} y; echo $y; kill $COPROC_PID", "x\n")],
    "own-number": [("a=$$; exit 0", ""), ("[[ $a == $$ ]]", "")],
    "exec-descriptors": [("exec 3>&1 >log; echo a", ""), ("exec >&3; cat log", "a\n")],
    "alias": [("shopt -s expand_aliases; alias hi='echo hi'", ""), ("hi", "hi\n")],
}

ALONE: dict[str, list[tuple]] = {
    "exit-of-the-cells-own": [
        ("exit() { echo mine; builtin exit 7; }; f() { exit; }; f; echo no", "mine\n", 7),
        ("x=1; false; set -e; false", "", 1),
        ("f; echo no; echo $x", "mine\n", 7),
    ],
    "names-of-builtins": [
        ('for f in command set local read return kill printf eval source echo; do eval "$f() { :; }"; done', ""),
        ("__cg_none=1; x=1; exit 3", "", 3),
        ("builtin echo $x; exit", "1\n"),
    ],
    "trap-err": [("trap 'echo err' ERR; false; true", "err\n")],
    "trap-err-after-exit": [("trap 'echo err' ERR; exit 0", ""), ("false; true", "err\n")],
}
