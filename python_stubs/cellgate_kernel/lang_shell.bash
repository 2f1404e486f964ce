# Runs the cells of a session whose language is the shell: bash lang_shell.bash FOLDER DESCRIPTOR. See lang_shell.py.
#
# The loop and the handler of EXIT are texts and no functions, in which `declare` would make local variables.
# When something ends the shell (exit, set -e, ${x:?}, an interrupt), the handler forks: the child has all
# variables, functions, options, traps and the folder, and goes on with the next cell; the parent is killed.
# Meanwhile, and between cells, __cg_idle is set and an interrupt is ignored: the cell that it is for has ended.
# Until the parent waits for its copy, no $(...) or other child is waited for: when SIGINT arrives in the middle of the
# call of sigaction() with which bash begins such a wait, its handler sends the signal again, for ever.
__cg_dir=$1 __cg_fd=$2 __cg_pid=$BASHPID __cg_user='' __cg_last='' __cg_x='' __cg_n=0 __cg_file='' __cg_status=0
__cg_code='' __cg_trap='' __cg_idle=1 __cg_reset=''
set --
unset BASH_ENV ENV
exec {__cg_out}>&1 {__cg_err}>&2
export -n SHLVL PWD OLDPWD # questions about programs show the variables that the session does not have

__cg_ret() { builtin return "$__cg_status"; }

# Ends the shell with this status, by an error, since bash would run the handler before it has left functions.
__cg_end() {
  __cg_idle=1 __cg_code=$1
  builtin set --
  { : "${1:?}"; } 2>/dev/null
}

exit() {
  { builtin local status=$? -; builtin set +ex; __cg_idle=1; } 2>/dev/null
  if [[ $BASHPID != "$__cg_pid" || $__cg_last ]]; then builtin exit "${1-$status}"; fi
  status=${1-$status}
  if [[ ! $status || $status == *[!0-9]* || ${#status} -gt 9 ]]; then
    (builtin exit "$status")
    status=$?
  fi
  __cg_end "$((10#$status & 255))"
}

__cg_loop='
while IFS=" " builtin read -r -u "$__cg_fd" __cg_n __cg_reset __cg_file; do
  if [[ $__cg_reset == 1 ]]; then exec >&"$__cg_out" 2>&"$__cg_err" </dev/null; fi
  __cg_idle=
  if ((__cg_status)) 2>/dev/null; then __cg_ret || builtin . "$__cg_file"; else builtin . "$__cg_file"; fi
  { __cg_status=$? __cg_x=$- __cg_idle=1; builtin set +x; } 2>/dev/null
  builtin printf "{\"done\":%d,\"status\":%d,\"options\":\"%s\"}\n" "$__cg_n" "$__cg_status" "$__cg_x" >&"$__cg_fd"
done
__cg_last=1
builtin exit 0'

__cg_exit='
__cg_idle=1
if { builtin trap -p >|"$__cg_dir/traps"; } 2>/dev/null; then
  IFS= builtin read -r -d "" __cg_traps <"$__cg_dir/traps" || builtin :
else
  __cg_traps=$(builtin trap -p)
fi
__cg_trap=""
if [[ $__cg_user ]]; then builtin eval "__cg_args=(${__cg_user#trap })"; __cg_trap=${__cg_args[1]-}; __cg_user=""; fi
if [[ $__cg_last ]]; then
  builtin eval "$__cg_trap"
else
  builtin trap "" INT
  (
    builtin eval "$__cg_traps"
    [[ $__cg_traps == *" SIGINT
"* ]] || builtin trap - INT
    builtin trap "$__cg_on_exit" EXIT
    builtin printf "{\"pid\":%d}\n" "$BASHPID" >&"$__cg_fd"
    builtin kill -KILL "$__cg_pid"
    __cg_pid=$BASHPID
    if [[ $__cg_trap ]]; then
      __cg_idle=
      if ((__cg_status)); then __cg_ret || builtin eval "$__cg_trap"; else builtin eval "$__cg_trap"; fi
      __cg_trap=""
    fi
    builtin printf "{\"done\":%d,\"status\":%d,\"options\":\"%s\"}\n" "$__cg_n" "$__cg_status" "$__cg_x" >&"$__cg_fd"
    builtin eval "$__cg_loop"
  )
fi'
__cg_on_exit='{ __cg_status=${__cg_code:-$?} __cg_x=$- __cg_code=; builtin set +x; } 2>/dev/null; builtin eval "$__cg_exit"'

# A handler of EXIT that a cell sets runs when a cell calls exit, and at the session's end.
trap() {
  builtin trap "$@" || return
  local now
  if [[ ${1-} == -- ]]; then builtin shift; fi
  # Bash gives the caller of a function these traps back, unless the function has set others.
  if [[ $# == 1 || ${1-} == - ]]; then
    for now in "$@"; do
      case ${now^^} in ERR | DEBUG | RETURN) builtin trap : "$now" ;; esac
    done
  fi
  [[ $BASHPID == "$__cg_pid" ]] || return 0
  now=$(builtin trap -p EXIT)
  [[ $now == "$__cg_own" ]] || __cg_user=$now
  builtin trap "$__cg_on_exit" EXIT
}

# mcptools SERVER TOOL [NAME=VALUE]... | SERVER TOOL --json OBJECT | search WORDS | help [SERVER [TOOL]]
# The kernel makes the call. Files of FOLDER: N.lock says that slot N is in use, N.args has the arguments, N.out
# and N.err what to print; the status comes by the FIFO N.
mcptools() {
  local - n status text
  set +eux -C
  for n in {0..15}; do
    { builtin printf %s "$BASHPID" >"$__cg_dir/$n.lock"; } 2>/dev/null && break
    n=
  done
  if [[ ! $n ]]; then
    builtin echo 'mcptools: 16 calls of this session wait already' >&2
    return 1
  fi
  builtin printf '%s\0' "$@" >|"$__cg_dir/$n.args"
  builtin printf '{"call":%d}\n' "$n" >&"$__cg_fd"
  builtin read -r status <"$__cg_dir/$n"
  text=$(<"$__cg_dir/$n.err")
  if [[ $text ]]; then builtin printf '%s\n' "$text" >&2; fi
  text=$(<"$__cg_dir/$n.out")
  if [[ $text ]]; then builtin printf '%s\n' "$text"; fi
  builtin printf '{"free":%d,"by":%d}\n' "$n" "$BASHPID" >&"$__cg_fd"
  return "$status"
}

# Writes what may complete the word of FOLDER/values, whose first text is its kind for compgen: c, v or f.
__cg_complete() {
  local - __cg_i
  local -a __cg_v
  set +eux -C
  builtin mapfile -d '' -t __cg_v <"$__cg_dir/values"
  while IFS= builtin read -r __cg_i; do
    if [[ $__cg_v == f && -d $__cg_i ]]; then __cg_i+=/; fi
    builtin printf '%s\0' "$__cg_i"
  done < <(builtin compgen -"$__cg_v" -- "${__cg_v[1]}") >|"$__cg_dir/values.out"
}

# Sets the variables of FOLDER/values, a name and a text each: all, or none when one of them, which it writes, is
# readonly. What a name was before, an integer or a reference to another, must not give the text a meaning.
__cg_put() {
  local - __cg_i
  local -a __cg_v
  set +aeux -C
  builtin mapfile -d '' -t __cg_v <"$__cg_dir/values"
  (
    for ((__cg_i = 0; __cg_i < ${#__cg_v[@]}; __cg_i += 2)); do
      { builtin unset -n "${__cg_v[__cg_i]}" && builtin unset -v "${__cg_v[__cg_i]}"; } 2>/dev/null && continue
      builtin printf '%s\0' "${__cg_v[__cg_i]}"
      builtin exit 1
    done
  ) >|"$__cg_dir/values.out" || return 0
  for ((__cg_i = 0; __cg_i < ${#__cg_v[@]}; __cg_i += 2)); do
    builtin unset -n "${__cg_v[__cg_i]}"
    builtin unset -v "${__cg_v[__cg_i]}"
    local -n __cg_r=${__cg_v[__cg_i]}
    __cg_r=${__cg_v[__cg_i + 1]} # faster than printf -v, and than with quotes
    builtin unset -n __cg_r
  done
}

# Writes the variables that FOLDER/values names: name, kind and number of texts, texts. Kinds: s: one, a: an array, A: an
# associative array, or one with gaps, with all keys first.
__cg_take() {
  local - __cg_i IFS=''
  local -a __cg_v __cg_kind __cg_keys
  set +eux -Cf
  builtin mapfile -d '' -t __cg_v <"$__cg_dir/values"
  for __cg_i in "${__cg_v[@]}"; do
    local -n __cg_r=$__cg_i
    __cg_keys=("${!__cg_r[@]}")
    if [[ ${__cg_keys-} == 0 ]]; then
      __cg_kind=${__cg_r@a}
    else
      __cg_kind=("${__cg_r[@]@a}")
    fi
    if ((!${#__cg_keys[@]})); then # it is empty, or unset
      __cg_kind=$(builtin declare -p "$__cg_i" 2>/dev/null)
      __cg_kind=${__cg_kind#* } __cg_kind=${__cg_kind%% *}
    fi
    case $__cg_kind in
      *A*)
        builtin printf '%s\0A%d\0' "$__cg_i" $((2 * ${#__cg_keys[@]}))
        if ((${#__cg_keys[@]})); then builtin printf '%s\0' "${__cg_keys[@]}" "${__cg_r[@]}"; fi
        ;;
      *a*)
        if ((${#__cg_keys[@]} && __cg_keys[-1] != ${#__cg_keys[@]} - 1)); then
          builtin printf '%s\0A%d\0' "$__cg_i" $((2 * ${#__cg_keys[@]}))
          builtin printf '%s\0' "${__cg_keys[@]}"
        else
          builtin printf '%s\0a%d\0' "$__cg_i" ${#__cg_keys[@]}
        fi
        if ((${#__cg_keys[@]})); then builtin printf '%s\0' "${__cg_r[@]}"; fi
        ;;
      *)
        if ((${#__cg_keys[@]})); then
          builtin printf '%s\0s1\0' "$__cg_i"
          builtin printf '%s\0' $__cg_r # neither split nor expanded, and four times faster than with quotes
        fi
        ;;
    esac
    builtin unset -n __cg_r
  done >|"$__cg_dir/values.out"
}

builtin trap "$__cg_on_exit" EXIT
# The handler of EXIT may have begun and not have set __cg_idle yet: an error would end it. The cell's file is read no more
# then, and the last command was not one of those that begin a cell.
builtin trap '[[ $__cg_idle || ! $__cg_trap && ${#BASH_SOURCE[@]} -lt 2 && $BASH_COMMAND != *__cg_[ifr]* ]] || __cg_end 130' INT
__cg_own=$(builtin trap -p EXIT)
builtin eval "$__cg_loop"
