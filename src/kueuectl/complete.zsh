#compdef @PROGRAM@
# Completion of @PROGRAM@ @BELOW@ for zsh.
__@FUNCTION@_complete() {
    local out directive line
    local -a typed found
    typed=("${(@)words[2,CURRENT]}")
    if [[ -n "@BELOW@" ]]; then
        # The other commands are completed by what did it before.
        if ((CURRENT < 3)) || [[ "${words[2]}" != "@BELOW@" ]]; then
            [[ -n "$__@FUNCTION@_before" ]] && "$__@FUNCTION@_before" "$@"
            return
        fi
        shift typed
    fi
    out=$("${words[1]}" @BELOW@ @REQUEST@ "${(@)typed}" 2>/dev/null) || return
    directive=${out##*:}
    for line in "${(@f)${out%:*}}"; do
        [[ -n "$line" ]] || continue
        line=${line//:/\\:}
        found+=("${line/$'\t'/:}")
    done
    _describe 'completions' found
    if ((directive == 0 && ${#found} == 0)); then
        [[ "${words[CURRENT]}" != -*=* ]] || compset -P '*='
        _files
    fi
}
if [[ -n "@BELOW@" && "${_comps[@PROGRAM@]-}" != __@FUNCTION@_complete ]]; then
    typeset -g __@FUNCTION@_before="${_comps[@PROGRAM@]-}"
fi
compdef __@FUNCTION@_complete @PROGRAM@
# Found in fpath, this file is what is called for the first completion.
[[ "${funcstack[1]}" != "_@PROGRAM@" ]] || __@FUNCTION@_complete "$@"
