# Completion of @PROGRAM@ @BELOW@ for fish.
function __@FUNCTION@_complete
    set -l typed (commandline -opc) (commandline -ct)
    set -l program $typed[1]
    set -e typed[1]
    test -n "@BELOW@"; and set -e typed[1]
    $program @BELOW@ @REQUEST@ $typed 2>/dev/null | string match --invert --regex '^:[0-9]+$'
end
complete -c @PROGRAM@ -f -a '(__@FUNCTION@_complete)'
