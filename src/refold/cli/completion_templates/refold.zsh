#compdef refold
# zsh completion for refold. Made by: refold completion zsh

@tables@

# What can stand at $1.
_refold_offer_value() {
    local -a found
    local program=${(Q)words[1]/#\~/$HOME}
    [[ $program == */* ]] || program=refold
    _refold_value "$1"
    case $kind in
    none | text) return 1 ;;
    choices) found=(${=choices}) ;;
    files) _files; return ;;
    directories) _files -/; return ;;
    *)
        found=("${(@f)$($program completion --complete $kind 2>/dev/null)}")
        found=("${(@)found%%$'\t'*}")
        found=("${(@)found:#}")
        ;;
    esac
    compadd -a found
}

_refold() {
    local at=refold place=0 flag= must= each i
    local kind choices needed
    local -a flags subcommands
    for ((i = 2; i < CURRENT; i++)); do
        each=${(Q)words[i]}
        if [[ -n $flag ]]; then
            flag=
            if [[ -n $must || $each != -* ]]; then continue; fi
        fi
        if [[ $each == -* ]]; then
            _refold_value "$at $each"
            if [[ $kind != none ]]; then flag=$each must=$needed; fi
        elif ((place == 0)) && [[ $at != refold || $i == 2 ]] && _refold_is_command "$at $each"; then
            at="$at $each"
        else
            place=$((place + 1))
        fi
    done
    if [[ -n $flag && (-n $must || $PREFIX != -*) ]]; then
        _refold_offer_value "$at $flag"
    elif [[ $PREFIX == --*=* ]]; then
        flag=${PREFIX%%=*}
        compset -P '*='
        _refold_offer_value "$at $flag"
    else
        _refold_names "$at"
        if [[ $PREFIX == -* ]]; then
            _describe -o -t flags flag flags
            return
        fi
        if ((place == 0)) && [[ $at != refold || $CURRENT == 2 ]]; then
            _describe -t command_table command subcommands
        fi
        _refold_offer_value "$at $place"
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _refold "$@"
else
    compdef _refold refold
fi
