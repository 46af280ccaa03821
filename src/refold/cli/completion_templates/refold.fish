# fish completion for refold. Made by: refold completion fish

@tables@

# Is the line at the command $argv[1]? With $argv[2], so many words stand after it.
function __refold_at
    set -l at refold
    set -l place 0
    set -l flag ''
    set -l number 0
    for each in (commandline -opc)[2..]
        set number (math $number + 1)
        if test -n "$flag"
            set -l must (__refold_takes "$at $flag")
            set flag ''
            if test "$must" = needed; or not string match -q -- '-*' $each
                continue
            end
        end
        if string match -q -- '-*' $each
            if test -n (__refold_takes "$at $each" | string collect -a)
                set flag $each
            end
        else if test $place -eq 0; and test "$at" != refold -o $number -eq 1; and __refold_is_command "$at $each"
            set at "$at $each"
        else
            set place (math $place + 1)
        end
    end
    test "$at" = "$argv[1]"; or return 1
    test (count $argv) -lt 2; and return 0
    test $argv[2] = first; and test $number -ne 0; and return 1
    test $argv[2] = first; and return 0
    test $place -eq $argv[2]; and test -z "$flag"
end

# Is one of these flags the last whole word? fish itself knows values that must follow only.
function __refold_after
    contains -- (commandline -opc)[-1] $argv
end

function __refold_ask
    command refold completion --complete $argv[1] 2>/dev/null
end

complete -c refold -f

@rules@
