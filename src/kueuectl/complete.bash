# Completion of @PROGRAM@ @BELOW@ for bash.
__@FUNCTION@_complete() {
    local out directive words line i last replaced
    # Bash takes --flag=value for three words, and replaces the last of them only.
    words=()
    for ((i = 1; i <= COMP_CWORD; i++)); do
        if ((i > 1)) && [[ ${COMP_WORDS[i]} == [=:]* || ${COMP_WORDS[i - 1]} == *[=:] ]]; then
            words[${#words[@]} - 1]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
    done
    if [[ -n "@BELOW@" ]]; then
        # The other commands are completed by what did it before.
        if ((${#words[@]} < 2)) || [[ ${words[0]} != "@BELOW@" ]]; then
            [[ -z "${__@FUNCTION@_before-}" ]] || "$__@FUNCTION@_before" "$@"
            return
        fi
        words=("${words[@]:1}")
    fi
    compopt +o default +o bashdefault 2>/dev/null
    COMPREPLY=()
    ((${#words[@]})) || words=("")
    last=${words[${#words[@]} - 1]}
    replaced=${last%"${2-}"}
    out=$("${COMP_WORDS[0]}" @BELOW@ __completeNoDesc "${words[@]}" 2>/dev/null) || return
    directive=${out##*:}
    # Names are quoted: the shell must not read commands in them.
    while IFS= read -r line; do
        [[ -n $line && $line == "$last"* ]] && COMPREPLY+=("$(printf %q "${line#"$replaced"}")")
    done <<<"${out%:*}"
    if ((${#COMPREPLY[@]} == 0)) && [[ $directive == 0 ]]; then
        compopt -o default 2>/dev/null
    fi
}
if [[ -n "@BELOW@" && $(complete -p @PROGRAM@ 2>/dev/null) =~ \ -F\ ([^\ ]+) ]]; then
    if [[ ${BASH_REMATCH[1]} != __@FUNCTION@_complete ]]; then
        __@FUNCTION@_before=${BASH_REMATCH[1]}
    fi
fi
complete -o default -o bashdefault -F __@FUNCTION@_complete @PROGRAM@
