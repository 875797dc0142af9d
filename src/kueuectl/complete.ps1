# Completion of @PROGRAM@ @BELOW@ for PowerShell.
Register-ArgumentCompleter -Native -CommandName '@PROGRAM@' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $typed = @($commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" })
    if ('@BELOW@') {
        if ($typed.Count -eq 0 -or $typed[0] -cne '@BELOW@') { return }
        $typed = @($typed | Select-Object -Skip 1)
    }
    if (-not $wordToComplete) { $typed += '""' }
    & '@PROGRAM@' @BELOW@ @REQUEST@ @typed 2>$null | Where-Object { $_ -notmatch '^:\d+$' } | ForEach-Object {
        $name, $text = $_ -split "`t", 2
        if ("$name".StartsWith($wordToComplete)) {
            [System.Management.Automation.CompletionResult]::new($name, $name, 'ParameterValue', "$(if ($text) { $text } else { $name })")
        }
    }
}
