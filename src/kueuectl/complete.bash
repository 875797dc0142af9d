# Completion of @PROGRAM@ @BELOW@ for bash.
__@FUNCTION@_complete() {
    local out directive words
    words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    [[ -n "@BELOW@" ]] && words=("${words[@]:1}")
    ((${#words[@]})) || words=("")
    out=$("${COMP_WORDS[0]}" @BELOW@ __completeNoDesc "${words[@]}" 2>/dev/null) || return
    directive=${out##*:}
    out=${out%:*}
    local IFS=$'\n'
    COMPREPLY=($(compgen -W "$out" -- "${COMP_WORDS[COMP_CWORD]}"))
    if ((${#COMPREPLY[@]} == 0 && directive == 0)); then
        compopt -o default
    fi
}
complete -F __@FUNCTION@_complete @PROGRAM@
