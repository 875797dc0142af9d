#compdef @PROGRAM@
# Completion of @PROGRAM@ @BELOW@ for zsh.
__@FUNCTION@_complete() {
    local out directive line
    local -a typed found
    typed=("${(@)words[2,CURRENT]}")
    [[ -n "@BELOW@" ]] && shift typed
    out=$("${words[1]}" @BELOW@ @REQUEST@ "${(@)typed}" 2>/dev/null) || return
    directive=${out##*:}
    for line in "${(@f)${out%:*}}"; do
        [[ -n "$line" ]] || continue
        line=${line//:/\\:}
        found+=("${line/$'\t'/:}")
    done
    _describe 'completions' found
    ((directive == 0 && ${#found} == 0)) && _files
}
compdef __@FUNCTION@_complete @PROGRAM@
