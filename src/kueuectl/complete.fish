# Completion of @PROGRAM@ @BELOW@ for fish.
function __@FUNCTION@_complete
    set -l typed (commandline -opc) (commandline -ct)
    set -l program $typed[1]
    set -e typed[1]
    test -n "@BELOW@"; and set -e typed[1]
    set -l found ($program @BELOW@ @REQUEST@ $typed 2>/dev/null)
    string match --invert --regex '^:[0-9]+$' -- $found
    if test "$found" = :0
        set -l flag (string match --regex '^-[^=]*=' -- "$typed[-1]")
        for path in (__fish_complete_path (string replace -- "$flag" '' "$typed[-1]"))
            printf '%s\n' "$flag$path"
        end
    end
end
# The other commands are completed by what is registered beside this.
function __@FUNCTION@_wanted
    set -l typed (commandline -opc)
    test -z "@BELOW@"; or test "$typed[2]" = "@BELOW@"
end
complete -c @PROGRAM@ -n __@FUNCTION@_wanted -f -a '(__@FUNCTION@_complete)'
